"""A user's own mixer at work: its class loaded, a module made of it, tried out and counted."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import numbers
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.mixers.base import Size
from geomix.mixers.frames import Frames
from geomix.mixers.own.source import GIVEN, HASH, KEPT, Constructor, Source, arguments_in, find, is_own, write

_TEXT = "__mixer_text__"


def load(mixer: Mapping[str, Any]) -> type[nn.Module]:
    """The class of a mixer. Its module is named after what the file holds, so that files of one name do not collide.

    A file that is not the one of the resolved settings is a `UserError`.
    """
    source = find(mixer)
    if mixer.get(HASH) not in (None, source.hash):
        raise UserError(
            f"{source.path}: was edited since this run began: start it again, and it is trained as it is now"
        )
    digest = hashlib.sha256(source.text).hexdigest()[:12]
    name = f"{source.package}{'.' if source.package else ''}_geomix_{source.path.stem}_{digest}"
    module = sys.modules.get(name) or _run(source, name)
    found = getattr(module, source.cls, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UserError(f"{source.name}: {source.cls} is no torch.nn.Module: derive it from that")
    return found


def _run(source: Source, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, source.path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as the import system does it
    try:
        # these bytes, not what the file may hold by now
        exec(compile(source.text, str(source.path), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise _sentence(source, "cannot be loaded", error) from error
    setattr(module, _TEXT, source.text)
    return module


def keep_beside(settings: dict[str, Any], mixer: nn.Module | None, folder: Path) -> None:
    """Write the source of a model's mixer into its folder, if it is a user's own, and forget in its settings whence it was loaded."""
    if is_own(settings.get("mixer", {}).get("mixer")):
        write(getattr(sys.modules[type(mixer).__module__], _TEXT), folder)
        settings["mixer"].pop(KEPT, None)


def make(mixer: Mapping[str, Any], width: int, *, block: int = 0, seed: int = 0, dropout: float = 0.0) -> nn.Module:
    """The mixer of one block: `Class(width, **arguments)`, with what it names of block, seed and dropout.

    `UserError` for arguments that the constructor does not take, and for what it raises itself.
    """
    cls, source, arguments = load(mixer), find(mixer), arguments_in(mixer)
    taken = _constructor(cls)
    taken.check(source.name, arguments)
    given = {"block": block, "seed": seed, "dropout": dropout}
    try:
        return cls(width, **{name: given[name] for name in GIVEN if name in taken.arguments}, **arguments)
    except UserError:
        raise
    except Exception as error:
        raise _sentence(source, "cannot be made", error) from error


def _constructor(cls: type) -> Constructor:
    parameters = list(inspect.signature(cls).parameters.values())
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    width = positional[0] if positional else "width" if any(p.kind == p.VAR_POSITIONAL for p in parameters) else None
    arguments = {p.name: p.default is p.empty for p in named if p.name != width}
    return Constructor(width, arguments, any(p.kind == p.VAR_KEYWORD for p in parameters))


def sizes(mixer: Mapping[str, Any], width: int, blocks: int, seed: int, tokens: int | None = None) -> list[Size]:
    """Size of the mixer of each block, after that of the first one was tried out; in a language model on blocks of `tokens` all are."""
    source = find(mixer)
    with torch.random.fork_rng(devices=[]):
        for block in range(1 if tokens is None else blocks):
            module = make(mixer, width, block=block, seed=seed).eval()
            if tokens is None:
                _try_out(source, module, width)
            else:
                _try_causality(source, module, width, tokens)
        return [_size(_somewhere(mixer, width, block, seed), source) for block in range(blocks)]


def _somewhere(mixer: Mapping[str, Any], width: int, block: int, seed: int) -> nn.Module:
    """The mixer of a block without memory, or with, when its constructor reads what it makes."""
    try:
        with torch.device("meta"):
            return make(mixer, width, block=block, seed=seed)
    except UserError:
        return make(mixer, width, block=block, seed=seed)


def _size(module: nn.Module, source: Source) -> Size:
    parameters = sum(p.numel() for p in module.parameters() if p.requires_grad)
    if (macs := getattr(module, "macs_per_frame", None)) is None:
        linear = sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear | nn.Conv1d))
        return Size(parameters, lambda frames: linear, from_linear_maps=True)
    if not callable(macs) or not isinstance(macs(100), numbers.Real):
        raise UserError(f"{source.name}: macs_per_frame(frames) must return the multiply-adds a frame, a number")
    return Size(parameters, macs)


@torch.no_grad()
def _try_out(source: Source, module: nn.Module, width: int) -> None:
    """Refuse a mixer whose forward fails, returns another shape, or lets padding change real frames."""
    x, lengths = torch.randn(2, 9, width), torch.tensor([9, 6])
    x[1, 6:] *= 10
    together, alone = _mixed(source, module, x, lengths), _mixed(source, module, x[1:, :6], lengths[1:])
    if not (together[0].isfinite().all() and alone.isfinite().all()):
        raise UserError(f"{source.name}: its forward gives NaN or infinity for ordinary numbers")
    if (together[1, :6] - alone[0]).abs().max() > 1e-3 * (1 + alone.abs().max()):
        raise UserError(
            f"{source.name}: an utterance comes out otherwise beside a longer one than alone: mask padded frames with "
            "frames.mask (batch, time), True where a frame is real"
        )


@torch.no_grad()
def _try_causality(source: Source, module: nn.Module, width: int, tokens: int) -> None:
    """Refuse a mixer in which a later token changes an earlier one: a language model would read what it predicts."""
    lengths, (x, other) = torch.tensor([tokens]), torch.randn(2, 1, tokens, width)
    whole = _mixed(source, module, x, lengths)
    if not whole.isfinite().all():
        raise UserError(f"{source.name}: its forward gives NaN or infinity for ordinary numbers")
    for known in sorted({max(1, tokens * part // 4) for part in range(4)} | {max(1, tokens - 1)}):
        changed = _mixed(source, module, torch.cat((x[:, :known], 10 * other[:, known:]), 1), lengths)
        apart = (changed[0, :known] - whole[0, :known]).abs().amax(-1)
        moved = ~(apart <= 1e-4 * (1 + whole.abs().max()))  # so that NaN counts
        if moved.any():
            raise UserError(
                f"{source.name}: token {int(moved.nonzero()[0]) + 1} comes out otherwise when those behind token {known} change: a "
                "mixer of a language model may read no later token: make it causal"
            )


def _mixed(source: Source, module: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
    frames = Frames.of(lengths, x.shape[1], x.shape[2] if getattr(module, "needs_positions", False) else None)
    try:
        y = module(x, frames)
    except Exception as error:
        raise _sentence(source, "fails in forward(x, frames)", error) from error
    if not isinstance(y, Tensor) or y.shape != x.shape:
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise UserError(
            f"{source.name}: forward(x, frames) returns {shape} for x {tuple(x.shape)}: return the shape of x"
        )
    return y


def _sentence(source: Source, what: str, error: Exception) -> UserError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(source.path)]
    where = f" (line {lines[-1]} of {source.path})" if lines else ""
    return UserError(f"{source.name} {what}: {type(error).__name__}: {' '.join(str(error).split())}{where}")
