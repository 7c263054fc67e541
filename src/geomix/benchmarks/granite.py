"""`geomix bench granite`: the full-size Granite model (the 3.3-2b shape, random weights), beside transformers 4.57.1 where it is installed.

Both run the same weights (one copy in memory), the same inputs, dtype and threads, by turns in one process; their outputs and
the gradients of their inputs are compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from geomix.benchmarks.clock import measure, operation_lines, operations, prepared
from geomix.benchmarks.forms import Agreement, Form, compare, require, speed_up
from geomix.benchmarks.options import Common, option
from geomix.benchmarks.output import write_csv
from geomix.models.granite.config import EncoderConfig, GraniteConfig, ProjectorConfig, TextConfig
from geomix.models.granite.decoder import GraniteDecoder
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.projector import Projector
from geomix.training.devices import peak_memory

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.1}  # of dozens of layers
COLUMNS = ("what", "dtype", "threads", "geomix_s", "transformers_s", "times_as_fast", "difference")


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench granite`; it writes granite.csv."""

    threads: int = option(2, "CPU threads")
    dtype: tuple[str, ...] = option(("float32", "bfloat16"), "float32, bfloat16")
    frames: tuple[int, ...] = option((150, 500), "encoder frames of 20 ms")
    layers: int = option(16, "encoder layers (3.3 has 16)")
    decoder_layers: int = option(4, "decoder layers (3.3-2b has 40)")
    seconds: float = option(4.0, "measuring time of a competitor")
    profile: bool = option(False, "where the time goes, operation by operation")


def run(options: Options) -> None:
    """Print a line a case: encoder and projector for each number of frames, the decoder's prompt and its tokens."""
    device = prepared("cpu", options.threads)
    config = config_3_3_2b(options.layers, options.decoder_layers)
    rows: list[dict[str, Any]] = []
    for name in options.dtype:
        rows += _encoder(config, name, options) + _decoder(config, name, options)
        print(f"peak memory so far {peak_memory(device) / 2**30:.2f} GiB", flush=True)
    write_csv(options.out / "granite.csv", COLUMNS, rows)


def config_3_3_2b(encoder_layers: int = 16, decoder_layers: int = 40) -> GraniteConfig:
    """The published shape, with fewer layers on request."""
    return GraniteConfig(
        EncoderConfig(num_layers=encoder_layers, output_dim=256),
        ProjectorConfig(
            hidden_size=1024, num_hidden_layers=2, num_attention_heads=16, intermediate_size=4096,
            cross_attention_frequency=1, encoder_hidden_size=1024,
        ),
        TextConfig(
            vocab_size=49160, hidden_size=2048, intermediate_size=8192, num_hidden_layers=decoder_layers,
            num_attention_heads=32, num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1e7, embedding_multiplier=12.0,
            attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0, eos_token_id=0, pad_token_id=0,
        ),
        audio_token_id=49159,
        has_lora_adapter=False,
    )  # fmt: skip


def _random(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Fill a module on the meta device with weights that keep activations at about one; returns its state dict."""
    generator, tensors = torch.Generator().manual_seed(0), {}
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            tensors[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
            continue
        noise = torch.empty(tensor.shape).uniform_(-1, 1, generator=generator)
        if tensor.ndim > 1:
            noise.mul_(1.7 / tensor[0].numel() ** 0.5)
        elif name.endswith("running_var") or ("norm" in name.lower() and name.endswith("weight")):
            noise.mul_(0.1).add_(1)
        else:
            noise.mul_(0.1)
        tensors[name] = noise.to(dtype)
    module.load_state_dict(tensors, assign=True)
    module.eval().requires_grad_(False)
    return tensors


def _peers(config: GraniteConfig, tensors: dict[str, dict[str, Tensor]]) -> dict[str, nn.Module] | None:
    """The modules of transformers 4.57.1 around the same tensors, or None where it is not installed."""
    try:
        import transformers
        from transformers.models.granite.modeling_granite import GraniteForCausalLM, GraniteRotaryEmbedding
        from transformers.models.granite_speech import modeling_granite_speech as modeling
    except ImportError:
        return None
    about = transformers.GraniteSpeechConfig(**config.to_json())
    makers = {
        "encoder": lambda: modeling.GraniteSpeechCTCEncoder(about.encoder_config),
        "projector": lambda: modeling.GraniteSpeechEncoderProjector(about),
        "decoder": lambda: GraniteForCausalLM._from_config(about.text_config, attn_implementation="sdpa"),
    }
    peers = {}
    for name, state in tensors.items():
        with torch.device("meta"):
            module = makers[name]()
        module.load_state_dict(state, assign=True, strict=False)
        if name == "encoder":  # what was on the meta device and is in no state dict
            places = torch.arange(config.encoder.context_size)
            module.attention_dists = places[:, None] - places[None, :] + config.encoder.max_pos_emb
        if name == "decoder":
            module.tie_weights()
            module.model.rotary_emb = GraniteRotaryEmbedding(about.text_config)
        peers[name] = module.eval().requires_grad_(False)
    return peers


def _encoder(config: GraniteConfig, name: str, options: Options) -> list[dict[str, Any]]:
    dtype, rows = getattr(torch, name), []
    with torch.device("meta"):
        encoder, projector = GraniteEncoder(config.encoder), Projector(config.projector, config.text.hidden_size)
    peers = _peers(config, {"encoder": _random(encoder, dtype), "projector": _random(projector, dtype)})
    for length in options.frames:
        calls = {"geomix": lambda x: projector(encoder(x))}
        if peers:
            calls["transformers"] = lambda x: peers["projector"](peers["encoder"](x))
        features = torch.randn(1, length, 160, generator=torch.Generator().manual_seed(0)).to(dtype)
        what = f"encoder ({config.encoder.num_layers} layers) + projector, {length} frames, {name}"
        rows.append(_row(what, name, calls, features, _agreement(what, name, calls, features), options))
    return rows


def _decoder(
    config: GraniteConfig, name: str, options: Options, prompt: int = 200, tokens: int = 16
) -> list[dict[str, Any]]:
    with torch.device("meta"):
        decoder = GraniteDecoder(config.text, tied=True)
    peers = _peers(config, {"decoder": _random(decoder, getattr(torch, name))})
    embedded = decoder.model.embed_tokens(
        torch.randint(1, 49000, (1, prompt), generator=torch.Generator().manual_seed(0))
    )

    def ours(x: Tensor, new: int) -> Tensor:
        cache = decoder.new_cache(1, prompt + new)
        logits = decoder(x, None, cache, last_only=True)
        for _ in range(new):
            logits = decoder(decoder.model.embed_tokens(logits[:, -1:].argmax(-1)), None, cache)
        return logits

    def theirs(x: Tensor, new: int) -> Tensor:
        out = peers["decoder"](inputs_embeds=x, use_cache=True, logits_to_keep=1)
        for _ in range(new):
            chosen = out.logits[:, -1:].argmax(-1)
            out = peers["decoder"](input_ids=chosen, past_key_values=out.past_key_values, use_cache=True)
        return out.logits

    what = f"decoder ({config.text.num_hidden_layers} of 40 layers), prompt of {prompt}, {name}"
    # gradients come without a cache, which is written in place
    whole = {"geomix": decoder} | (
        {"transformers": lambda x: peers["decoder"](inputs_embeds=x, use_cache=False).logits} if peers else {}
    )
    agreement, both = (
        _agreement(what, name, whole, embedded),
        {"geomix": ours} | ({"transformers": theirs} if peers else {}),
    )
    return [
        _row(text, name, {who: partial(call, new=new) for who, call in both.items()}, embedded, agreement, options)
        for new, text in ((0, what), (tokens, f"the same and {tokens} tokens"))
    ]


def _agreement(what: str, name: str, calls: dict[str, Callable], inputs: Tensor) -> Agreement | None:
    """Outputs and the inputs' gradients of ours and theirs; None without theirs; a UserError where they differ."""
    if len(calls) == 1:
        return None
    leaf = inputs.clone().requires_grad_()
    upstream = torch.randn(calls["geomix"](inputs).shape, generator=torch.Generator().manual_seed(0))
    found = {who: Form(partial(call, leaf), [leaf], upstream).outcome() for who, call in calls.items()}
    agreement = compare(found["geomix"], found["transformers"], TOLERANCES[name])
    require({"geomix": agreement}, what)
    return agreement


@torch.inference_mode()
def _row(
    what: str, name: str, calls: dict[str, Callable], inputs: Tensor, agreement: Agreement | None, options: Options
) -> dict[str, Any]:
    ready = {who: partial(call, inputs) for who, call in calls.items()}
    times = measure(ready, seconds=options.seconds, warm_up=1)
    row = {"what": what, "dtype": name, "threads": options.threads} | {
        f"{who}_s": t.seconds for who, t in times.items()
    }
    print(f"{what:52s} " + "   ".join(f"{who} {timing.seconds:8.3f} s" for who, timing in times.items()), end="")
    if agreement:
        row |= {
            "times_as_fast": speed_up(times["geomix"], times["transformers"], agreement),
            "difference": agreement.relative,
        }
        print(f"   {row['times_as_fast']:.2f} times as fast", end="")
    print(flush=True)
    if options.profile:
        for who, call in ready.items():
            print(f"  {who}", operation_lines(operations(call, 10)), sep="\n")
    return row
