"""Tensors of Granite Speech files: their names in three schemes, the files of a folder, and files that appear whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from geomix.errors import UserError
from geomix.files import atomic_path, read_json

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

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


class Files:
    """The tensors of a folder by canonical name; an index decides which files count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = folder / "model.safetensors.index.json"
        if index.exists():
            content = read_json(index)
            located = content.get("weight_map") if isinstance(content, dict) else None
            if not isinstance(located, dict) or not all(isinstance(file, str) for file in located.values()):
                raise UserError(f"{index}: weight_map does not name a file for each tensor: fetch the index again")
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
        except (SafetensorError, OSError) as error:
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


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file, whole or not at all; tensors that share memory are written each. UserError for a full disk."""
    whole, seen = {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        whole[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    with atomic_path(path) as temporary:
        try:
            save_file(whole, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # which hides the system's error
            if "os error 28" in str(error) or "os error 122" in str(error):
                raise UserError(f"{path}: the disk is full: free some space and run again") from None
            raise
