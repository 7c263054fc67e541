"""A trained model as a folder: model.safetensors, model.yaml and, of a user's own mixer, its source; it loads from there alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import yaml

from geomix.errors import UserError
from geomix.files import write_text
from geomix.mixers.own.module import keep_beside
from geomix.mixers.own.source import kept
from geomix.models.architectures import model_config
from geomix.models.conformer import ConformerCTC
from geomix.tensors import load_state, state_once, write_tensors


def save_model(model: ConformerCTC, folder: str | os.PathLike, tokenizer: str = "tokenizer.model") -> None:
    """Write model.safetensors, model.yaml and the source of a user's own mixer (mixer_source.py) into `folder`.

    tokenizer : name of the tokenizer file beside them
    """
    folder = Path(folder)
    write_tensors(folder / "model.safetensors", state_once(model))
    values = model.config.to_dict()
    if isinstance(model, ConformerCTC):  # Granite's encoder has no slot for a mixer
        keep_beside(values, getattr(model.blocks[0], "mixer", None), folder)
    about = {"model": values, "tokenizer": tokenizer}
    write_text(folder / "model.yaml", yaml.safe_dump(about, sort_keys=False))


def load_model(folder: str | os.PathLike, device: torch.device | str = "cpu") -> ConformerCTC:
    """The model that `save_model` wrote, in eval mode on `device`; nothing but the folder is needed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        about = yaml.safe_load((folder / "model.yaml").read_text(encoding="utf-8"))
        state = load_file(folder / "model.safetensors", device=str(device))
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or folder / 'model.safetensors'}: no such file; give the folder of a trained model"
        ) from None
    except (yaml.YAMLError, SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{folder}: its model.yaml or model.safetensors is damaged ({' '.join(str(error).split())}); make the model again"
        ) from None
    if not isinstance(about, Mapping) or not isinstance(about.get("model"), Mapping):
        raise UserError(f"{folder / 'model.yaml'}: no entry `model` with settings; make the model again")
    config = model_config(kept(about["model"], folder))
    if config.blocks > len(state):  # each has its tensors: to build a billion of them first would take days
        raise UserError(
            f"{folder}: model.yaml has {config.blocks:,} blocks, model.safetensors {len(state):,} tensors; make the model again"
        )
    with torch.device("meta"):
        model = config.build()
    for name, tensor in model.state_dict().items():
        if name in state and state[name].is_floating_point() != tensor.is_floating_point():
            raise UserError(f"{folder}: {name} in model.safetensors is of {state[name].dtype}; make the model again")
        if name in state and tensor.is_floating_point():
            state[name] = state[name].to(tensor.dtype)  # stored in half precision by somebody
    try:
        load_state(model, state, assign=True)
    except RuntimeError as error:
        raise UserError(
            f"{folder}: model.safetensors does not fit model.yaml ({str(error).splitlines()[-1].strip()}); make the model again"
        ) from None
    _fill_buffers(model, config.build, device)
    return model.eval().requires_grad_(True)


def _fill_buffers(model: ConformerCTC, build: Callable[[], ConformerCTC], device: torch.device | str) -> None:
    """Give buffers that are no part of the weights (tables of an algebra), and were made on no device, their values."""
    if not any(buffer.is_meta for buffer in model.buffers()):
        return
    made = dict(build().named_buffers())
    for name, buffer in list(model.named_buffers()):
        if buffer.is_meta:
            module, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(module), attribute, made[name].to(device))
