"""Weights as safetensors files: whole or not at all, a tensor that two modules share written once and loaded tied; first weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from geomix.files import atomic_path
from geomix.seeds import derive_seed

if TYPE_CHECKING:
    from torch import Tensor, nn


@contextlib.contextmanager
def drawn_apart(*purpose: int | str) -> Iterator[None]:
    """Draw from a stream of this purpose; torch's own goes on as if nothing had been drawn."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(*purpose))
        yield


def write_tensors(path: str | os.PathLike, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors to `path`, whole or not at all; a full disk is a `UserError`, and the file before stays.

    The bytes are made first: safetensors' own writer reports a full disk with an error of its own class.
    """
    from safetensors.torch import save

    seen: set[int] = set()
    plain = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        storage = value.untyped_storage().data_ptr()
        # two views of one memory are two tensors to safetensors, which it refuses
        plain[name] = value.clone() if storage in seen else value
        seen.add(storage)
    content = save(plain)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def state_once(model: nn.Module) -> dict[str, Tensor]:
    """State dict of a model without the second names of tensors that modules share."""
    second = _second_names(model)
    return {name: tensor for name, tensor in model.state_dict().items() if name not in second}


def load_state(model: nn.Module, weights: Mapping[str, Tensor], **options: Any) -> None:
    """Load what `state_once` gave; tensors that modules of `model` share stay shared.

    options : of torch's `load_state_dict`, whose errors are raised
    """
    second = {name: first for name, first in _second_names(model).items() if name not in weights and first in weights}
    model.load_state_dict({**weights, **{name: weights[first] for name, first in second.items()}}, **options)
    if options.get("assign"):  # torch has made a parameter of its own for each name
        for name, first in second.items():
            module, _, attribute = name.rpartition(".")
            owner, _, own = first.rpartition(".")
            setattr(model.get_submodule(module), attribute, getattr(model.get_submodule(owner), own))


def _second_names(model: nn.Module) -> dict[str, str]:
    """Second, third, ... name of each shared tensor -> its first."""
    first: dict[int, str] = {}
    names = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if first.setdefault(id(tensor), name) != name:
            names[name] = first[id(tensor)]
    return names
