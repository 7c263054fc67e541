"""Configuration of Granite Speech checkpoints, read from the config.json of the 3.2, 3.3, 4.0 and 4.1 kinds.

Defaults are those of the transformers 4.57.1 classes, since a config.json may leave them out.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_json

FEATURES = 160  # numbers an encoder frame: two log-mel frames of 80 bands


@dataclass(frozen=True)
class EncoderConfig:
    """The conformer: `context_size` in encoder frames of 20 ms, `output_dim` CTC symbols."""

    input_dim: int = 160
    num_layers: int = 10
    hidden_dim: int = 1024
    feedforward_mult: int = 4
    num_heads: int = 8
    dim_head: int = 128
    output_dim: int = 42
    context_size: int = 200
    max_pos_emb: int = 512
    dropout: float = 0.1
    conv_kernel_size: int = 15
    conv_expansion_factor: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.context_size <= self.max_pos_emb:
            raise UserError(
                f"context_size {self.context_size} is not between 1 and max_pos_emb {self.max_pos_emb}: "
                "the position table would not reach across a window"
            )


@dataclass(frozen=True)
class ProjectorConfig:
    """The windowed Q-Former: `window_size` encoder frames become window_size // downsample_rate rows."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    layer_norm_eps: float = 1e-12
    cross_attention_frequency: int = 2
    encoder_hidden_size: int = 1408
    window_size: int = 15
    downsample_rate: int = 5

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"projector_config: num_attention_heads {self.num_attention_heads} does not divide hidden_size {self.hidden_size}"
            )
        if self.window_size < self.downsample_rate:
            raise UserError(
                f"downsample_rate {self.downsample_rate} exceeds window_size {self.window_size}: no row would be left of a window"
            )

    @property
    def queries(self) -> int:
        """Rows that each window becomes."""
        return self.window_size // self.downsample_rate


@dataclass(frozen=True)
class TextConfig:
    """The Granite decoder with its four multipliers."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 32
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise UserError(
                f"text_config: num_key_value_heads {self.num_key_value_heads} does not divide num_attention_heads "
                f"{self.num_attention_heads}"
            )
        if self.head_width % 2 or self.head_width < 1:
            raise UserError(
                f"text_config: heads of {self.head_width} channels cannot be turned by pairs: give an even head_dim"
            )

    @property
    def head_width(self) -> int:
        """Channels of an attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class GraniteConfig:
    """A whole checkpoint.

    `adapter_merged`: the weights hold the adapter, so that the model is for audio only. `raw`: the config.json it was read from,
    kept for the export.
    """

    encoder: EncoderConfig = EncoderConfig()
    projector: ProjectorConfig = ProjectorConfig()
    text: TextConfig = TextConfig()
    audio_token_id: int = 49155
    has_lora_adapter: bool = True
    tie_word_embeddings: bool = True
    adapter_merged: bool = False
    raw: dict = field(default_factory=dict, compare=False, repr=False)

    def check_whole(self, path: Path) -> None:
        """UserError, naming the file, unless encoder, projector and the features fit one another."""
        if self.encoder.input_dim != FEATURES:
            raise UserError(
                f"{path}: encoder_config.input_dim is {self.encoder.input_dim}, the features have {FEATURES} numbers"
            )
        if self.projector.encoder_hidden_size != self.encoder.hidden_dim:
            raise UserError(
                f"{path}: projector_config.encoder_hidden_size is {self.projector.encoder_hidden_size}, the encoder's "
                f"hidden_dim {self.encoder.hidden_dim}: they are one width"
            )

    def merged(self) -> GraniteConfig:
        """The same model with its adapter merged into the weights."""
        return replace(self, has_lora_adapter=False, adapter_merged=True)

    def to_json(self) -> dict:
        """A config.json that this project and transformers 4.57.1 read."""
        projector = asdict(self.projector)
        window, rate = projector.pop("window_size"), projector.pop("downsample_rate")
        text = {key: value for key, value in asdict(self.text).items() if key != "head_dim" or value is not None}
        own = {
            "architectures": ["GraniteSpeechForConditionalGeneration"],
            "model_type": "granite_speech",
            "audio_token_index": self.audio_token_id,
            "has_lora_adapter": self.has_lora_adapter,
            "adapter_merged": self.adapter_merged,
            "tie_word_embeddings": self.tie_word_embeddings,
            "window_size": window,
            "downsample_rate": rate,
            "encoder_config": {"model_type": "granite_speech_encoder", **asdict(self.encoder)},
            "projector_config": {"model_type": "blip_2_qformer", **projector},
            "text_config": {"model_type": "granite", **text, "tie_word_embeddings": self.tie_word_embeddings},
        }
        # what the original file says beside these (dtype, token names, ...) is kept; 3.2's remote code is not
        kept = {key: value for key, value in self.raw.items() if key not in ("auto_map", "audio_token_id", *own)}
        return {**kept, **own}


# transformers 5.x gives the encoder these other names
_ENCODER_ALIASES = {
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_mel_bins": "input_dim",
}

# (section, key, the only value whose arithmetic is implemented here)
_REQUIRED = [
    ("projector_config", "hidden_act", "gelu"),
    ("projector_config", "position_embedding_type", "absolute"),
    ("projector_config", "use_qformer_text_input", False),
    ("text_config", "hidden_act", "silu"),
    ("text_config", "attention_bias", False),
    ("text_config", "mlp_bias", False),
    ("text_config", "rope_scaling", None),
    ("encoder_config", "use_max_pos_emb_in_pos_emb_calc", True),
]


def read_config(folder: str | Path) -> GraniteConfig:
    """Read <folder>/config.json; UserError names the key whose value this implementation would compute wrongly."""
    path = Path(folder) / "config.json"
    raw = read_json(path)
    try:
        return parse_config(raw)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def parse_config(raw: dict[str, Any]) -> GraniteConfig:
    """Turn the content of a config.json into a `GraniteConfig`; UserError names the key whose value makes no sense."""
    if not isinstance(raw, dict):
        raise UserError("holds no settings by name: fetch the checkpoint's config.json again")
    if raw.get("model_type") != "granite_speech":
        raise UserError(
            f"model_type {raw.get('model_type')!r} is not 'granite_speech': only GraniteSpeechForConditionalGeneration "
            "checkpoints are read"
        )
    for key in ("cat_hidden_layers", "encoder_hidden_layers"):  # granite-speech-4.1-2b-plus: another projector input
        if raw.get(key):
            raise UserError(
                f"{key} {raw[key]!r} belongs to the -plus model, which this implementation does not compute"
            )
    sections = {}
    for name in ("encoder_config", "projector_config", "text_config"):
        if not isinstance(raw.get(name) or {}, dict):
            raise UserError(f"{name} is {raw[name]!r}, not settings by name: fetch the checkpoint's config.json again")
        sections[name] = dict(raw.get(name) or {})
    for section, key, value in _REQUIRED:
        if sections[section].get(key, value) != value:
            raise UserError(f"{section}.{key} is {sections[section][key]!r}, only {value!r} is implemented")

    encoder = {_ENCODER_ALIASES.get(key, key): value for key, value in sections["encoder_config"].items()}
    if encoder.get("dim_head", 0) is None:
        whole = {"hidden_dim": EncoderConfig.hidden_dim, "num_heads": EncoderConfig.num_heads, **encoder}
        width, heads = (_typed(f"encoder_config.{key}", whole[key], "int") for key in ("hidden_dim", "num_heads"))
        encoder["dim_head"] = width // heads
    # 3.2 keeps these two inside the projector's section
    projector = {
        **{key: raw[key] for key in ("window_size", "downsample_rate") if key in raw},
        **sections["projector_config"],
    }
    text = sections["text_config"]
    if text.get("num_key_value_heads") is None and "num_attention_heads" in text:
        text["num_key_value_heads"] = text["num_attention_heads"]  # as transformers reads it
    rope = text.get("rope_parameters") or {}  # transformers 5.x
    if not isinstance(rope, dict):
        raise UserError(f"text_config.rope_parameters is {rope!r}, not settings by name")
    if rope.get("rope_type", "default") != "default":
        raise UserError(
            f"text_config.rope_parameters.rope_type is {rope['rope_type']!r}, only 'default' is implemented"
        )
    text["rope_theta"] = rope.get("rope_theta", text.get("rope_theta", TextConfig.rope_theta))
    tied = raw.get("tie_word_embeddings", text.get("tie_word_embeddings", True))
    return GraniteConfig(
        encoder=_pick(EncoderConfig, "encoder_config", encoder),
        projector=_pick(ProjectorConfig, "projector_config", projector),
        text=_pick(TextConfig, "text_config", text),
        audio_token_id=_typed(
            "audio_token_id",
            raw.get("audio_token_id", raw.get("audio_token_index", GraniteConfig.audio_token_id)),
            "int",
        ),
        has_lora_adapter=_typed("has_lora_adapter", raw.get("has_lora_adapter", True), "bool"),
        tie_word_embeddings=_typed("tie_word_embeddings", tied, "bool"),
        adapter_merged=_typed("adapter_merged", raw.get("adapter_merged", False), "bool"),
        raw=raw,
    )


def _pick(kind: type, section: str, values: dict[str, Any]) -> Any:
    # a config.json carries many keys of the generic classes (beams, labels, ...) that mean nothing here
    fields = kind.__dataclass_fields__
    return kind(**{n: _typed(f"{section}.{n}", values[n], fields[n].type) for n in fields if n in values})


_ABOVE_0 = ("eps", "theta", "scaling")


def _typed(name: str, value: Any, kind: str) -> Any:
    """The value, or a UserError that says what belongs under this name; `kind` is the annotation of its field."""
    if value is None and "None" in kind:
        return None
    number = type(value) in (int, float) and math.isfinite(value)
    if kind == "bool":
        right, wanted = type(value) is bool, "true or false"
    elif name.endswith(("token_id", "token_index")):
        ids = value if isinstance(value, list) and "list" in kind and value else [value]
        right, wanted = all(type(one) is int and one >= 0 for one in ids), "a token's number, 0 or above"
    elif kind.startswith("int"):
        right, wanted = type(value) is int and value >= 1, "a whole number above 0"
    elif name.endswith("dropout"):
        right, wanted = number and 0 <= value < 1, "a probability below 1"
    elif name.endswith(_ABOVE_0):
        right, wanted = number and value > 0, "a number above 0"
    else:
        right, wanted = number, "a number"
    if not right:
        raise UserError(f"{name} is {value!r}: give {wanted}")
    return value
