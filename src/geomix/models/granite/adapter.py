"""The LoRA adapter of a Granite Speech checkpoint: merged into the weights, or kept beside them and trained.

A 3.x checkpoint carries adapter_config.json and adapter_model.safetensors as PEFT writes them. Source: Hu et al. 2021,
https://arxiv.org/abs/2106.09685; W x + scale B A x with scale = alpha / rank (alpha / sqrt(rank) for rslora).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.models.granite.model import GraniteSpeech
from geomix.models.granite.tensors import FLOATS, canonical_name, write_tensors

MODULES = ("q_proj", "v_proj")
WEIGHTS, DESCRIPTION = "adapter_model.safetensors", "adapter_config.json"
# what other settings of PEFT compute is not implemented: (key, the value without effect)
_PLAIN = [
    ("bias", "none"), ("rank_pattern", {}), ("alpha_pattern", {}), ("use_dora", False), ("fan_in_fan_out", False),
    ("lora_bias", False), ("modules_to_save", None), ("layers_to_transform", None),
]  # fmt: skip


@dataclass(frozen=True)
class AdapterConfig:
    """Rank r, alpha, the attention projections that are adapted, and whether the scale is alpha / sqrt(r)."""

    rank: int
    alpha: float
    modules: tuple[str, ...] = MODULES
    rslora: bool = False

    @property
    def scale(self) -> float:
        """What B A is multiplied by."""
        rank, alpha = self.rank, self.alpha
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank


def read_adapter_config(path: Path) -> AdapterConfig:
    """An adapter_config.json; UserError names the key that is absent, no number, or of other arithmetic."""
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise UserError(f"{path}: holds no settings by name: fetch the file again")
    for key, plain in _PLAIN:
        if settings.get(key, plain) not in (plain, None):
            raise UserError(f"{path}: {key} is {settings[key]!r}, only {plain!r} is implemented")
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise UserError(f"{path}: r is {rank!r}: give the adapter's rank, a whole number above 0")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise UserError(f"{path}: lora_alpha is {alpha!r}: give the adapter's scale, a number")
    modules = settings.get("target_modules")
    if modules is None or isinstance(modules, str):  # a pattern over whole names, which the tensors spell out
        modules = MODULES
    if not isinstance(modules, list | tuple) or not modules or not all(isinstance(m, str) for m in modules):
        raise UserError(f"{path}: target_modules is {modules!r}: give a list of names such as q_proj")
    return AdapterConfig(rank, float(alpha), tuple(modules), bool(settings.get("use_rslora")))


def read_adapter(
    folder: Path, layers: int, weights: dict[str, Tensor]
) -> tuple[AdapterConfig, dict[str, dict[str, Tensor]]]:
    """The adapter's settings and, by weight name, its halves {"A": (r, in), "B": (out, r)}; every one that the settings name.

    `weights`: the model's by canonical name. UserError names the file or tensor that is absent, damaged or of another shape.
    """
    path, description = folder / WEIGHTS, folder / DESCRIPTION
    for file in (path, description):
        if not file.exists():
            raise UserError(
                f"{file}: not here, but config.json says has_lora_adapter: copy the checkpoint's adapter files too, "
                "since without them the model is wrong for audio"
            )
    config = read_adapter_config(description)
    halves: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _tensors(path).items():
        match = re.fullmatch(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight", name)
        if match is None:
            raise UserError(f"{path}: {name} is unexpected: only lora_A and lora_B weights are known")
        if tensor.dtype not in FLOATS:
            raise UserError(f"{path}: {name} is stored as {tensor.dtype}: give it as float32, bfloat16 or float16")
        halves.setdefault(canonical_name(f"{match[1]}.weight"), {})[match[2]] = tensor
    expected = [
        f"language_model.model.layers.{layer}.self_attn.{module}.weight"
        for layer in range(layers)
        for module in config.modules
    ]
    for name in dict.fromkeys([*expected, *halves]):
        pair = halves.get(name, {})
        if set(pair) != {"A", "B"} or name not in weights:
            raise UserError(
                f"{path}: the adapter of {name} is {'incomplete' if pair else 'missing'}: copy the file again"
            )
        a, b, shape = pair["A"], pair["B"], weights[name].shape
        if a.shape != (config.rank, shape[1]) or b.shape != (shape[0], config.rank):
            raise UserError(
                f"{path}: the adapter of {name} has shapes {list(a.shape)} and {list(b.shape)}, "
                f"rank {config.rank} and the weight {list(shape)} do not fit them"
            )
    return config, halves


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a safetensors file ({error}): fetch it again") from None


def merge_adapter(tensors: dict[str, Tensor], layers: int, folder: Path) -> None:
    """W <- W + scale B A for every adapted projection; names with and without PEFT's `base_model.model.`."""
    config, halves = read_adapter(folder, layers, tensors)
    for name, pair in halves.items():
        weight = tensors[name]
        a, b = (pair[half].to(weight.device, torch.promote_types(weight.dtype, torch.float32)) for half in "AB")
        tensors[name] = (weight.to(a.dtype) + config.scale * (b @ a)).to(weight.dtype)


class AdaptedLinear(nn.Linear):
    """A frozen projection with a low-rank change beside it: x -> W x + scale B (A x). A is random, B zero at the start.

    `lora_A.weight` (rank, in) and `lora_B.weight` (out, rank) are kept in fp32, whatever the projection's type.
    """

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(base.in_features, base.out_features, bias=False, device="meta")
        self.weight, self.scale = base.weight, scale
        place = {"device": base.weight.device, "dtype": torch.promote_types(base.weight.dtype, torch.float32)}
        self.lora_A = nn.Linear(base.in_features, rank, bias=False, **place)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False, **place)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        low = F.linear(x, self.lora_A.weight.to(x.dtype))
        return F.linear(x, self.weight) + self.scale * F.linear(low, self.lora_B.weight.to(x.dtype))


def adapted(model: GraniteSpeech) -> dict[str, AdaptedLinear]:
    """The adapted projections of a model by name; none unless `attach_adapter` has been called."""
    return {name: module for name, module in model.named_modules() if isinstance(module, AdaptedLinear)}


def attach_adapter(
    model: GraniteSpeech, rank: int = 64, alpha: float = 32.0, modules: tuple[str, ...] = MODULES
) -> GraniteSpeech:
    """Put a trainable adapter beside the decoder's attention projections `modules`; the function is unchanged at the start.

    UserError when the model has an adapter already, or no such projection. The model is returned.
    """
    config = AdapterConfig(rank, alpha, modules)
    if adapted(model):
        raise UserError("the model has an adapter beside its weights already: train that one, or merge it first")
    if type(rank) is not int or rank < 1:
        raise UserError(f"rank {rank!r} of an adapter: give a whole number above 0")
    for layer in model.language_model.model.layers:
        for name in modules:
            if not isinstance(getattr(layer.self_attn, name, None), nn.Linear):
                raise UserError(
                    f"{name!r} is no attention projection of the decoder: choose q_proj, k_proj, v_proj or o_proj"
                )
            setattr(layer.self_attn, name, AdaptedLinear(getattr(layer.self_attn, name), rank, config.scale))
    model.adapter = config
    return model


def attach_stored_adapter(model: GraniteSpeech, folder: Path) -> None:
    """Put the checkpoint's own adapter beside the weights, to be trained on."""
    config, halves = read_adapter(folder, model.config.text.num_hidden_layers, model.state_dict())
    attach_adapter(model, config.rank, config.alpha, config.modules)
    model.adapter = config
    for name, module in adapted(model).items():
        module.scale = config.scale
        with torch.no_grad():
            module.lora_A.weight.copy_(halves[f"{name}.weight"]["A"])
            module.lora_B.weight.copy_(halves[f"{name}.weight"]["B"])


def train_only(model: GraniteSpeech, *parts: str) -> list[nn.Parameter]:
    """Freeze the model but for `parts` ("encoder", "projector", "language_model", "adapter"); returns what is to be trained.

    The model stays in the mode it is in: `eval()` keeps the encoder's BatchNorm statistics, which a small corpus would spoil.
    """
    known = ("encoder", "projector", "language_model", "adapter")
    for part in parts:
        if part not in known:
            raise UserError(f"{part!r} is no part of Granite Speech: choose from {', '.join(known)}")
    if "adapter" in parts and not adapted(model):
        raise UserError("the model has no adapter beside its weights: attach_adapter makes one")
    model.requires_grad_(False)
    for part in parts:
        if part == "adapter":
            for module in adapted(model).values():
                module.lora_A.requires_grad_(True)
                module.lora_B.requires_grad_(True)
        else:
            getattr(model, part).requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def save_adapter(model: GraniteSpeech, folder: str | Path) -> None:
    """Write adapter_config.json and adapter_model.safetensors beside a checkpoint's other files, as `load_model` and PEFT read them.

    Each file appears whole or not at all. UserError when the model has no adapter beside its weights.
    """
    modules, config = adapted(model), getattr(model, "adapter", None)
    if not modules:
        raise UserError("the model has no adapter beside its weights to be saved: attach_adapter makes one")
    folder = Path(folder)
    tensors = {
        f"base_model.model.{name}.lora_{half}.weight": getattr(module, f"lora_{half}").weight
        for name, module in modules.items()
        for half in "AB"
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(tensors, folder / WEIGHTS)
    write_json(
        folder / DESCRIPTION,
        {
            "peft_type": "LORA", "r": config.rank, "lora_alpha": config.alpha, "target_modules": list(config.modules),
            "bias": "none", "use_rslora": config.rslora,
        },
    )  # fmt: skip


@torch.no_grad()
def merge_attached(model: GraniteSpeech) -> GraniteSpeech:
    """Add the adapter beside the weights to them, in place; the model is returned, and `save_checkpoint` takes it."""
    for layer in model.language_model.model.layers:
        for name, module in list(layer.self_attn.named_children()):
            if isinstance(module, AdaptedLinear):
                change = module.scale * (module.lora_B.weight @ module.lora_A.weight)
                plain = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
                plain.weight = nn.Parameter((module.weight.to(change.dtype) + change).to(module.weight.dtype))
                setattr(layer.self_attn, name, plain)
    model.adapter, model.config = None, model.config.merged()
    return model
