"""Granite Speech checkpoints: a local folder to a model and back, every tensor accounted for.

Three naming schemes are read: that of the published 3.3 and 4.x files (canonical here, and what transformers writes), that of
the 3.2 files (`encoder.rnn_tr.K...`, from IBM's first module), and the names that transformers 5.x has in memory
(`model.encoder...`). Any missing, unexpected or misshapen tensor is a `UserError` that names it: a stock load of the 3.2
names in transformers leaves the encoder random with only a warning.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.models.granite.config import GraniteConfig, read_config
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.model import GraniteSpeech
from geomix.models.granite.prompt import PromptTokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

# 3.2 name inside a block -> canonical name (weights, biases and BatchNorm buffers alike)
_BLOCK_3_2 = {
    "ff1.fn.norm": "ff1.pre_norm",
    "ff1.fn.fn.net.0": "ff1.up_proj",
    "ff1.fn.fn.net.3": "ff1.down_proj",
    "ff2.fn.norm": "ff2.pre_norm",
    "ff2.fn.fn.net.0": "ff2.up_proj",
    "ff2.fn.fn.net.3": "ff2.down_proj",
    "attn.norm": "attn.pre_norm",
    "attn.fn.to_q": "attn.to_q",
    "attn.fn.to_kv": "attn.to_kv",
    "attn.fn.to_out": "attn.to_out",
    "attn.fn.rel_pos_emb": "attn.rel_pos_emb",
    "conv.net.0": "conv.norm",
    "conv.net.2": "conv.up_conv",
    "conv.net.4.conv": "conv.depth_conv.conv",
    "conv.net.5": "conv.batch_norm",
    "conv.net.7": "conv.down_conv",
    "post_norm": "post_norm",
}
_TO_3_2 = {new: old for old, new in _BLOCK_3_2.items()}


def canonical_name(name: str) -> str:
    """The 3.3 name of a tensor in any of the three schemes; a name of none of them is returned as it is."""
    if name == "lm_head.weight":
        return "language_model.lm_head.weight"
    if name.startswith("model.language_model."):
        return "language_model.model." + name.removeprefix("model.language_model.")
    name = name.removeprefix("model.") if name.startswith(("model.encoder.", "model.projector.")) else name
    match = re.fullmatch(r"encoder\.rnn_tr\.(\d+)\.(.+)\.(\w+)|encoder\.rnn_tr\.0\.(\w+)", name)
    if match is None:
        return name
    if match[4]:
        return f"encoder.input_linear.{match[4]}"
    module = _BLOCK_3_2.get(match[2])
    return name if module is None or match[1] == "0" else f"encoder.layers.{int(match[1]) - 1}.{module}.{match[3]}"


def name_3_2(name: str) -> str:
    """The 3.2 name of a canonical name."""
    if name.startswith("encoder.input_linear."):
        return name.replace("encoder.input_linear.", "encoder.rnn_tr.0.")
    match = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)\.(\w+)", name)
    return f"encoder.rnn_tr.{int(match[1]) + 1}.{_TO_3_2[match[2]]}.{match[3]}" if match else name


class _Files:
    """The tensors of a folder by canonical name; an index decides which files count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = folder / "model.safetensors.index.json"
        if index.exists():
            located = read_json(index).get("weight_map", {})
        elif (folder / "model.safetensors").exists():
            located = dict.fromkeys(self._names("model.safetensors"), "model.safetensors")
        else:
            raise UserError(
                f"{folder}: neither model.safetensors nor model.safetensors.index.json is here: put the checkpoint's "
                "config.json, its safetensors files and its tokenizer files into this folder"
            )
        self.where: dict[str, tuple[str, str]] = {}
        for name, file in located.items():
            canonical = canonical_name(name)
            if canonical.endswith("attention_dists"):  # a table of constants that some files carry
                continue
            if canonical in self.where:
                raise UserError(
                    f"{folder}: {name} and {self.where[canonical][1]} are the same tensor under two names: keep one"
                )
            self.where[canonical] = (file, name)

    def _open(self, file: str):
        path = self.folder / file
        if not path.exists():
            raise UserError(f"{path}: the index names this file, but it is not here: copy the whole checkpoint")
        try:
            return safe_open(path, "pt")
        except SafetensorError as error:
            raise UserError(f"{path}: not a safetensors file ({error}): fetch it again") from None

    def _names(self, file: str) -> list[str]:
        with self._open(file) as opened:
            return list(opened.keys())

    def read(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        """Canonical names and tensors of those names that start with `prefix`, one file after the other."""
        by_file: dict[str, list[tuple[str, str]]] = {}
        for canonical, (file, name) in self.where.items():
            if canonical.startswith(prefix):
                by_file.setdefault(file, []).append((canonical, name))
        for file, names in by_file.items():
            with self._open(file) as opened:
                held = set(opened.keys())
                for canonical, name in names:
                    if name not in held:
                        raise UserError(
                            f"{self.folder / file}: {name} is missing, though the index places it here: fetch the file again"
                        )
                    yield canonical, opened.get_tensor(name)


def _fill(module: nn.Module, tensors: dict[str, Tensor], folder: Path, prefix: str = "") -> None:
    """Give a module on the meta device its tensors, exactly those that it has."""
    wanted = {prefix + name: tensor.shape for name, tensor in module.state_dict().items()}
    problems = [f"{name} is missing" for name in wanted if name not in tensors]
    problems += [f"{name} is unexpected" for name in tensors if name not in wanted]
    problems += [
        f"{name} has shape {list(tensors[name].shape)}, the config gives {list(shape)}"
        for name, shape in wanted.items()
        if name in tensors and tensors[name].shape != shape
    ]
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(
            f"{folder}: {'; '.join(problems[:3])}{more}: the files and config.json are not of one checkpoint"
        )
    module.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, assign=True)


def _convert(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)


def load_model(
    folder: str | Path, *, dtype: str = "float32", device: str = "cpu", adapter: str = "merge"
) -> GraniteSpeech:
    """Load a checkpoint folder in eval mode.

    `adapter`: "merge" adds the LoRA of a 3.x checkpoint to the weights (a UserError if the config announces one and the folder
    has none: without it 3.x models are wrong for audio); "ignore" leaves it out, for text without audio.
    """
    folder = Path(folder)
    config = read_config(folder)
    kind, place = DTYPES[dtype], torch.device(device)
    tensors = {name: _convert(tensor, kind, place) for name, tensor in _Files(folder).read("")}
    head, table = tensors.get("language_model.lm_head.weight"), tensors.get("language_model.model.embed_tokens.weight")
    if config.tie_word_embeddings and head is not None:
        if table is not None and not torch.equal(head, table):
            raise UserError(
                f"{folder}: language_model.lm_head.weight differs from the embedding table, but config.json ties them: "
                "set tie_word_embeddings to false if the head is meant"
            )
        del tensors["language_model.lm_head.weight"]
    if config.has_lora_adapter and adapter == "merge":
        _merge_adapter(tensors, config, folder)
        config = config.merged()
    with torch.device("meta"):
        model = GraniteSpeech(config)
    _fill(model, tensors, folder)
    return model.eval()


def load_checkpoint(
    folder: str | Path, *, dtype: str = "float32", device: str = "cpu", adapter: str = "merge"
) -> tuple[GraniteSpeech, PromptTokenizer]:
    """`load_model`, and the folder's tokenizer with its prompt template."""
    tokenizer = PromptTokenizer.load(folder, read_config(folder))  # fails sooner than the weights
    return load_model(folder, dtype=dtype, device=device, adapter=adapter), tokenizer


def load_encoder(folder: str | Path, *, dtype: str = "float32", device: str = "cpu") -> GraniteEncoder:
    """Only the encoder with its CTC head, in eval mode: the rest of the checkpoint is not read."""
    folder = Path(folder)
    config = read_config(folder)
    with torch.device("meta"):
        encoder = GraniteEncoder(config.encoder)
    kind, place = DTYPES[dtype], torch.device(device)
    tensors = {name: _convert(tensor, kind, place) for name, tensor in _Files(folder).read("encoder.")}
    _fill(encoder, tensors, folder, "encoder.")
    return encoder.eval()


def _merge_adapter(tensors: dict[str, Tensor], config: GraniteConfig, folder: Path) -> None:
    """W <- W + (alpha / r) B A for every adapted projection; names with and without PEFT's `base_model.model.`."""
    path, description = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    for file in (path, description):
        if not file.exists():
            raise UserError(
                f"{file}: not here, but config.json says has_lora_adapter: copy the checkpoint's adapter files too, "
                "since without them the model is wrong for audio"
            )
    settings = read_json(description)
    for key, plain in (("bias", "none"), ("rank_pattern", {}), ("alpha_pattern", {}), ("use_dora", False)):
        if settings.get(key, plain) not in (plain, None):
            raise UserError(f"{description}: {key} is {settings[key]!r}, only {plain!r} is implemented")
    rank, alpha = settings["r"], settings["lora_alpha"]
    scale = alpha / math.sqrt(rank) if settings.get("use_rslora") else alpha / rank

    halves: dict[str, dict[str, Tensor]] = {}
    with safe_open(path, "pt") as opened:
        for name in opened.keys():
            match = re.fullmatch(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight", name)
            if match is None:
                raise UserError(f"{path}: {name} is unexpected: only lora_A and lora_B weights are known")
            halves.setdefault(canonical_name(f"{match[1]}.weight"), {})[match[2]] = opened.get_tensor(name)

    modules = settings["target_modules"]
    expected = [
        f"language_model.model.layers.{layer}.self_attn.{module}.weight"
        for layer in range(config.text.num_hidden_layers)
        for module in (modules if isinstance(modules, list) else ("q_proj", "v_proj"))
    ]
    for name in dict.fromkeys([*expected, *halves]):
        pair = halves.get(name, {})
        if set(pair) != {"A", "B"} or name not in tensors:
            raise UserError(
                f"{path}: the adapter of {name} is {'incomplete' if pair else 'missing'}: copy the file again"
            )
        weight = tensors[name]
        a, b = (pair[half].to(weight.device, torch.promote_types(weight.dtype, torch.float32)) for half in "AB")
        if a.shape != (rank, weight.shape[1]) or b.shape != (weight.shape[0], rank):
            raise UserError(
                f"{path}: the adapter of {name} has shapes {list(a.shape)} and {list(b.shape)}, "
                f"rank {rank} and the weight {list(weight.shape)} do not fit them"
            )
        tensors[name] = (weight.to(a.dtype) + scale * (b @ a)).to(weight.dtype)


def save_checkpoint(
    model: GraniteSpeech, folder: str | Path, *, names: str = "3.3", max_shard_bytes: int = 5_000_000_000
) -> None:
    """Write config.json and safetensors (with an index when more than one) under the published names; whole or not at all.

    `names`: "3.3" (what transformers reads) or "3.2". UserError if the folder exists already.
    """
    folder = Path(folder)
    if folder.exists():
        raise UserError(f"{folder}: exists already: choose a new folder or remove it")
    rename = {"3.3": str, "3.2": name_3_2}[names]
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in model.state_dict().items():
        if shards[-1] and size + tensor.nbytes > max_shard_bytes:
            shards.append({})
            size = 0
        shards[-1][rename(name)] = tensor.detach().cpu().contiguous()
        size += tensor.nbytes
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        config = {**model.config.to_json(), "dtype": str(model.dtype).removeprefix("torch.")}
        write_json(work / "config.json", config)
        files = ["model.safetensors"]
        if len(shards) > 1:
            files = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
            where = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
            total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
            write_json(work / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
        for file, shard in zip(files, shards, strict=True):
            save_file(shard, work / file, metadata={"format": "pt"})
        os.chmod(work, 0o755)
        os.replace(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
