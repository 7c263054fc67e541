"""Starting a training from the weights of a trained model instead of initial ones (fine-tuning)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from geomix.errors import UserError
from geomix.models.conformer import ConformerCTC
from geomix.settings.initial import FILES
from geomix.speech.decoding import load_recogniser
from geomix.speech.tokenizer import Tokenizer

_OWN = ("mean", "std")
"""Buffers with the normalisation of the features, which is that of the new training data."""
_SHOWN = 5


@dataclass(frozen=True)
class Start:
    """What a training started from.

    folder, weights, tokens : the model's folder and the hashes of its weights and its token list
    kept : units of the new tokenizer that the model had, whose rows of the output layer were taken over
    new : units that it lacked, whose rows begin as those of an untrained model
    """

    folder: str
    weights: str
    tokens: str
    kept: int
    new: list[str]

    @classmethod
    def of(cls, tokenizer: Tokenizer, origin: Mapping[str, str]) -> Start:
        """How a tokenizer fits the model of the settings' `init_from`."""
        had = set(Tokenizer.load(origin["folder"]).tokens)
        new = [token for token in tokenizer.tokens if token not in had]
        return cls(**origin, kept=tokenizer.size - len(new), new=new)


def start_from(model: ConformerCTC, tokenizer: Tokenizer, origin: Mapping[str, str]) -> None:
    """Load into the untrained `model` the weights of the model that the settings' `init_from` names.

    All of the encoder must fit. Of the output layer (and of the layer that feeds its posteriors back) each unit takes the
    rows of the unit with the same text; the other ones keep their first weights. Features are normalised as the new data
    ask for. Nothing of the old training but its weights is used: the optimiser and its schedule start anew.

    origin : {folder, weights, tokens}, as `settings.initial.initial_weights` gives it

    Raises
    ------
    UserError
        When the folder's files are no longer those of the settings, or tensors do not fit, which it names.
    """
    from geomix.files import sha256

    folder = origin["folder"]
    for what, name in FILES.items():
        if sha256(f"{folder}/{name}") != origin[what]:
            raise UserError(f"{folder}/{name}: has changed since the settings were read: run again")
    old, units = load_recogniser(folder, "cpu")
    rows = {token: row for row, token in enumerate(units.tokens)}
    shared = [(new, rows[token]) for new, token in enumerate(tokenizer.tokens) if token in rows]
    there, wanted = old.state_dict(), model.state_dict()
    misfits, state = [], {}
    for name, tensor in wanted.items():
        if name in _OWN:
            state[name] = tensor
        elif name not in there:
            misfits.append(f"{name} is not there")
        elif found := _fitted(name, there[name], tensor, shared):
            state[name] = found[0]
        else:
            misfits.append(f"{name} is {_shape(there[name])} there, {_shape(tensor)} here")
    misfits += [f"{name} is there alone" for name in there if name not in wanted]
    if misfits:
        more = f" and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        raise UserError(
            f"training.init_from {folder}: does not fit this model: {'; '.join(misfits[:_SHOWN])}{more}: start from a model "
            "with the same keys under `model` and the same arm"
        )
    model.load_state_dict(state)


def _fitted(name: str, old: Tensor, new: Tensor, shared: list[tuple[int, int]]) -> list[Tensor]:
    """[the tensor to load]; [] where it does not fit. Rows of units go to their new places."""
    dimension = {"ctc.weight": 0, "ctc.bias": 0, "conditioning.weight": 1}.get(name)
    if dimension is None:
        return [old] if old.shape == new.shape else []
    sizes = [list(tensor.shape) for tensor in (old, new)]
    for size in sizes:
        size.pop(dimension)
    if sizes[0] != sizes[1]:
        return []
    to, of = (torch.tensor(places) for places in zip(*shared, strict=True))
    return [new.index_copy(dimension, to, old.index_select(dimension, of).to(new.dtype))]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
