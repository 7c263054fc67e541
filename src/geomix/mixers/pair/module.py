"""PairMixer: attention-free mixing by bilinear products of each frame with partners at fixed offsets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from geomix.algebra.pair_product import PairProduct, product_of_kind
from geomix.algebra.sign_dial import SignDial
from geomix.errors import UserError
from geomix.kernels.pair_features.pairing import Pairing
from geomix.kernels.pair_mixer import pair_mixer
from geomix.kernels.pair_mixer.naive import mixture, openness
from geomix.mixers.frames import Frames
from geomix.mixers.pair.arguments import Pair
from geomix.mixers.registry import arguments_of

OFFSETS = (1, 2, 4, 8, 12, 16)


class PairMixer(nn.Module):
    """Grassmann-flow mixing, its controls and its variants ([Zhang2025], section 3; two-sided form: [Tested2026], e02).

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
        gate: "article" returns (1 - alpha) (g - u), to be added to a residual stream; "add" (1 - alpha) g; "none" g, without a gate.
        blend: the article's gate returns alpha u + (1 - alpha) g, [Zhang2025]'s form, which replaces the stream.
        gate_bias: added to the gate's logit, whose learned bias starts around 0: at 2 the mixer starts nearly closed.
        pool: "mean" or "sum" over the valid pairs.
        normalise: divide a pair's product by its length.
        weights: one projection "shared" by all pairs, one for each "side", or one for each "offset".
        signs: "learned" makes the signs s_ij of a_i b_j + s_ij a_j b_i parameters, which start at `signs_start`; `kind` is then
            not read. No weight decay pulls them (`undecayed`).
        feature_dropout: probability with which each number of g is zeroed in training.
        empty: g of a frame with no valid pair and of a padded frame: "zero", or "bias" (the projection's bias).
        min_sine, eps: see `PairProduct.normaliser`.
        form: "anchored" (the exact rewrite) or "paper" (one pair vector per offset, the definition).
        block: index of the block that holds the mixer.
        seed: of the signed table.
    """

    backend: str | None = None  # of `kernels.pair_mixer`; None: its choice for the device
    side_weights: tuple[float, float] = (1.0, 1.0)  # of the past and the future pairs; an ablation sets others
    undecayed = ("signs",)
    """Parameters that no weight decay pulls (`training.step.make_optimizer`)."""

    def __init__(
        self,
        width: int,
        kind: str = "wedge",
        rank: int = 32,
        offsets: Sequence[int] = OFFSETS,
        two_sided: bool = True,
        gate: str = "article",
        *,
        blend: bool = False,
        gate_bias: float = 0.0,
        pool: str = "mean",
        normalise: bool = True,
        weights: str = "shared",
        signs: str = "fixed",
        signs_start: float = -1.0,
        feature_dropout: float = 0.0,
        one_offset_per_block: bool = False,
        empty: str = "zero",
        min_sine: float = 1e-3,
        eps: float = 1e-6,
        form: str = "anchored",
        block: int = 0,
        seed: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in Pair.model_fields}
        super().__init__()
        if type(width) is not int or width < 1:
            raise UserError(f"width {width!r} of a pair mixer: give a positive whole number")
        if not isinstance(eps, int | float) or not 0 < eps < math.inf:
            raise UserError(f"eps {eps!r} of a pair mixer: give a positive number")
        arguments_of({"mixer": "pair", **given}).check(width)
        self._product, self._control = product_of_kind(kind, rank, seed), product_of_kind("symmetric", rank)
        self.offsets = (offsets[block % len(offsets)],) if one_offset_per_block else tuple(offsets)
        self.two_sided, self.blend, self.empty = two_sided, blend and gate == "article", empty
        self.pool, self.normalise, self.weights = pool, normalise, weights
        self.gating, self.gate_bias, self.feature_dropout = gate, gate_bias, feature_dropout
        self.min_sine, self.eps, self.form = min_sine, eps, form
        components, maps = self._product.out_dim, self.pairing.maps
        self.reduce = nn.Linear(width, rank)
        self.project = nn.Linear(maps * components, width)
        if maps > 1:  # each starts as the one of `shared` would
            nn.init.uniform_(self.project.weight, -(components**-0.5), components**-0.5)
        self.gate = None if gate == "none" else nn.Linear(2 * width, width)
        learned = torch.full((components,), float(signs_start)) if signs == "learned" else None
        self.signs = None if learned is None else nn.Parameter(learned)

    @property
    def product(self) -> PairProduct | SignDial:
        """The product of a pair."""
        return self._product if self.signs is None else SignDial(self.signs, self._product, self._control)

    @property
    def pairing(self) -> Pairing:
        """Which frames are paired, and how their pairs become one feature."""
        return Pairing(self.offsets, **self._pairing)

    @property
    def _pairing(self) -> dict:
        return {
            "two_sided": self.two_sided, "pool": self.pool, "normalise": self.normalise, "weights": self.weights,
            "side_weights": self.side_weights, "min_sine": self.min_sine, "eps": self.eps,
        }  # fmt: skip

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); padded frames influence no real one."""
        frames.check(x)
        return pair_mixer(
            self.product,
            x,
            self.reduce(x),
            self.project.weight,
            self.project.bias,
            *self._gate(),
            frames.mask,
            self.offsets,
            gating=self.gating,
            blend=self.blend,
            empty=self.empty,
            dropout=self.feature_dropout if self.training else 0.0,
            form=self.form,
            backend=self.backend,
            **self._pairing,
        )

    def _gate(self) -> tuple[Tensor | None, Tensor | None]:
        """Weights and bias of the gate, None without one."""
        if self.gate is None:
            return None, None
        return self.gate.weight, self.gate.bias + self.gate_bias if self.gate_bias else self.gate.bias

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
            form=self.form,
            **self._pairing,
        )

    def gate_value(self, x: Tensor, g: Tensor) -> Tensor:
        """alpha: (B, T, width); 0, all of the mixture, without a gate."""
        return torch.zeros_like(x) if self.gate is None else openness(x, g, *self._gate())

    def extra_repr(self) -> str:
        return f"offsets={self.offsets}, two_sided={self.two_sided}, form={self.form!r}"
