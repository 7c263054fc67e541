"""PairMixer: attention-free mixing by bilinear products of each frame with partners at fixed offsets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from geomix.algebra.pair_product import PAIR_KINDS, product_of_kind
from geomix.errors import UserError
from geomix.kernels.pair_features import FORMS
from geomix.kernels.pair_mixer import pair_mixer
from geomix.kernels.pair_mixer.naive import mixture, openness
from geomix.mixers.frames import Frames

OFFSETS = (1, 2, 4, 8, 12, 16)


class PairMixer(nn.Module):
    """Grassmann-flow mixing and its controls ([Zhang2025], section 3; two-sided form: [Tested2026], e02).

    Each frame u_t is reduced to z_t (r numbers), paired with the frames at `offsets` before it and, two-sided, after it; the
    pair products, divided by their normaliser, are averaged over the valid pairs and projected to g_t; a gate
    alpha = sigmoid(W_gate [u; g]) weighs them. Parameters at width 256, r 32: 266,784 (geometric: 267,040).

    Args:
        width: model width D.
        kind: "wedge" (Plücker), "symmetric", "signed" (random signs, drawn from `seed`) or "geometric" (scalar + wedge).
        rank: r.
        offsets: distances between partners in frames.
        two_sided: pair with later frames too; False is causal.
        one_offset_per_block: block l uses offset l modulo their number alone.
        gate: "branch" returns (1 - alpha) (g - u), to be added to a residual stream; "blend" returns alpha u + (1 - alpha) g,
            [Zhang2025]'s form, which replaces the stream.
        empty: g of a frame with no valid pair and of a padded frame: "zero", or "bias" (the projection's bias).
        min_sine, eps: see `PairProduct.normaliser`.
        form: "anchored" (the exact rewrite) or "paper" (one pair vector per offset, the definition).
        block: index of the block that holds the mixer.
        seed: of the signed table.
    """

    backend: str | None = None  # of `kernels.pair_mixer`; None: its choice for the device

    def __init__(
        self,
        width: int,
        kind: str = "wedge",
        rank: int = 32,
        offsets: Sequence[int] = OFFSETS,
        two_sided: bool = True,
        gate: str = "branch",
        *,
        one_offset_per_block: bool = False,
        empty: str = "zero",
        min_sine: float = 1e-3,
        eps: float = 1e-6,
        form: str = "anchored",
        block: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _one_of("kind", kind, PAIR_KINDS)
        _one_of("gate", gate, ("branch", "blend"))
        _one_of("empty", empty, ("zero", "bias"))
        _one_of("form", form, FORMS)
        if not isinstance(offsets, Iterable):
            raise UserError(f"offsets {offsets!r} of a pair mixer: give a list of whole numbers of frames")
        offsets = tuple(offsets)
        if not offsets or any(type(o) is not int or o < 1 for o in offsets) or len(set(offsets)) < len(offsets):
            raise UserError(f"offsets {list(offsets)}: give distinct positive whole numbers of frames")
        for name, value in (("width", width), ("rank", rank)):
            if type(value) is not int or value < 1:
                raise UserError(f"{name} {value!r} of a pair mixer: give a positive whole number")
        if not isinstance(min_sine, int | float) or not 0 <= min_sine <= 1:
            raise UserError(f"min_sine {min_sine!r} of a pair mixer: give a sine from 0 to 1")
        if not isinstance(eps, int | float) or not 0 < eps < math.inf:
            raise UserError(f"eps {eps!r} of a pair mixer: give a positive number")
        try:
            self.product = product_of_kind(kind, rank, seed)
        except ValueError as error:
            raise UserError(f"rank {rank} of a {kind} mixer: {error}") from None
        self.offsets = (offsets[block % len(offsets)],) if one_offset_per_block else offsets
        self.two_sided, self.blend, self.empty = two_sided, gate == "blend", empty
        self.min_sine, self.eps, self.form = min_sine, eps, form
        self.reduce = nn.Linear(width, rank)
        self.project = nn.Linear(self.product.out_dim, width)
        self.gate = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); padded frames influence no real one."""
        frames.check(x)
        return pair_mixer(
            self.product,
            x,
            self.reduce(x),
            self.project.weight,
            self.project.bias,
            self.gate.weight,
            self.gate.bias,
            frames.mask,
            self.offsets,
            blend=self.blend,
            empty=self.empty,
            backend=self.backend,
            **self._options,
        )

    def mixed(self, x: Tensor, frames: Frames) -> Tensor:
        """g: (B, T, width), in at least fp32."""
        frames.check(x)
        return mixture(
            self.product,
            self.reduce(x),
            self.project.weight,
            self.project.bias,
            frames.mask,
            self.offsets,
            empty=self.empty,
            **self._options,
        )

    def gate_value(self, x: Tensor, g: Tensor) -> Tensor:
        """alpha: (B, T, width)."""
        return openness(x, g, self.gate.weight, self.gate.bias)

    @property
    def _options(self) -> dict:
        return {"two_sided": self.two_sided, "min_sine": self.min_sine, "eps": self.eps, "form": self.form}

    def extra_repr(self) -> str:
        return f"offsets={self.offsets}, two_sided={self.two_sided}, form={self.form!r}"


def _one_of(name: str, value: str, choices) -> None:
    if value not in choices:
        raise UserError(f"{name} {value!r} of a pair mixer is not known: choose one of {', '.join(choices)}")
