"""A trained Conformer with a part taken out, without training it again: mixers, offsets, sides, outer taps of the convolution."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from geomix.errors import UserError
from geomix.mixers import PairMixer
from geomix.models.conformer import ConformerCTC

KERNELS = (15, 7)


@dataclass(frozen=True)
class Ablation:
    """One change of a model.

    kind : mixer, offset, side or convolution
    name : what was done, in words
    change : does it to the model that it is given
    """

    kind: str
    name: str
    change: Callable[[ConformerCTC], None]

    def of(self, model: ConformerCTC) -> ConformerCTC:
        """A changed copy; the model stays as it is."""
        changed = copy.deepcopy(model)
        with torch.no_grad():
            self.change(changed)
        return changed


def ablations(
    model: nn.Module,
    blocks: Sequence[int] | None = None,
    offsets: Sequence[int] | None = None,
    kernels: Sequence[int] | None = None,
) -> list[Ablation]:
    """The changes that fit a model, in the order of a table.

    Args:
        model: a `ConformerCTC`.
        blocks: whose mixers are closed one at a time, counted from 1; None: each that has one.
        offsets: that are removed one at a time, in every block that has it; None: all of the pair mixers'.
        kernels: to which the convolution is cut; None: those of `KERNELS` that are smaller than its own.

    Raises UserError for a block, an offset or a kernel that the model does not have, and for another architecture.
    """
    if not isinstance(model, ConformerCTC):
        raise UserError(f"{type(model).__name__} has no mixer slot: give a Conformer's folder")
    found = [
        Ablation("mixer", f"mixer of block {block} closed", functools.partial(_close, blocks=[block]))
        for block in _blocks(model, blocks)
    ]
    found.append(
        Ablation("mixer", "all mixers closed", functools.partial(_close, blocks=range(1, len(model.blocks) + 1)))
    )
    found += [
        Ablation("offset", f"offset {offset} removed", functools.partial(_without_offset, offset=offset))
        for offset in _offsets(model, offsets)
    ]
    if any(mixer.two_sided for mixer in pair_mixers(model)):
        for name, weights in (
            ("past removed", (0.0, 1.0)),
            ("future removed", (1.0, 0.0)),
            ("sign of the future flipped", (1.0, -1.0)),
        ):
            found.append(Ablation("side", name, functools.partial(_weigh_sides, weights=weights)))
    found += [
        Ablation("convolution", f"convolution cut to {kernel} frames", functools.partial(_cut, kernel=kernel))
        for kernel in _kernels(model, kernels)
    ]
    return found


def pair_mixers(model: ConformerCTC) -> list[PairMixer]:
    """The pair mixers of a model, by block."""
    return [block.mixer for block in model.blocks if isinstance(block.mixer, PairMixer)]


def _blocks(model: ConformerCTC, asked: Sequence[int] | None) -> list[int]:
    if asked is None:
        return [number for number, block in enumerate(model.blocks, start=1) if block.mixer is not None]
    for block in asked:
        if not 1 <= block <= len(model.blocks):
            raise UserError(f"block {block}: the model has blocks 1 to {len(model.blocks)}: choose one of them")
    return list(asked)


def _offsets(model: ConformerCTC, asked: Sequence[int] | None) -> list[int]:
    known = sorted({offset for mixer in pair_mixers(model) for offset in mixer.offsets})
    for offset in asked or ():
        if offset not in known:
            have = f"its pair mixers have {', '.join(map(str, known))}" if known else "the model has no pair mixer"
            raise UserError(f"offset {offset}: {have}: choose one of those")
    return known if asked is None else list(asked)


def _kernels(model: ConformerCTC, asked: Sequence[int] | None) -> list[int]:
    own = model.config.kernel
    for kernel in asked or ():
        if kernel % 2 == 0 or not 1 <= kernel < own:
            raise UserError(f"kernel {kernel}: give an odd number below the model's own, {own}")
    return [kernel for kernel in KERNELS if kernel < own] if asked is None else list(asked)


def _close(model: ConformerCTC, blocks: Sequence[int]) -> None:
    for block in blocks:
        model.blocks[block - 1].mixer = None


def _without_offset(model: ConformerCTC, offset: int) -> None:
    for mixer in pair_mixers(model):
        if offset not in mixer.offsets:
            continue
        if mixer.weights == "offset":  # whose projection goes with it
            parts = list(mixer.pairing.split(mixer.project.weight))
            if len(parts) > 1:
                del parts[mixer.offsets.index(offset)]
            else:
                mixer.weights = "shared"
            mixer.project.weight = nn.Parameter(torch.cat(parts, dim=1))
        mixer.offsets = tuple(other for other in mixer.offsets if other != offset)


def _weigh_sides(model: ConformerCTC, weights: tuple[float, float]) -> None:
    for mixer in pair_mixers(model):
        if mixer.two_sided:
            mixer.side_weights = weights


def _cut(model: ConformerCTC, kernel: int) -> None:
    edge = (model.config.kernel - kernel) // 2
    for block in model.blocks:
        taps = block.conv_module.depthwise_conv.weight
        taps[..., :edge] = taps[..., -edge:] = 0
