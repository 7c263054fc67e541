"""Self-attention whose queries and keys are multivectors: score <q ~k>_0 / tau, rotor positions, value transformation.

Source: [Parslow2026], sections 4.2 (reversion, learned temperature) and 4.3 (rotors; RoPE as the special case,
[Su2021]). The metric's signs are folded into q, so that the score is one scaled_dot_product_attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.algebra.operations import contract_two_sided
from geomix.errors import UserError
from geomix.mixers.frames import Frames
from geomix.tensors import drawn_apart


class MultivectorAttention(nn.Module):
    """Multi-head attention over multivectors; each head's width is channels x dim components.

    With vectors only (signature (d, 0, 0), grades (1,)), temperature sqrt(d), no rotors and no value terms this is ordinary
    scaled dot-product attention, number for number.

    Args:
        width: model width D; D / heads must be a multiple of the algebra's number of components.
        heads: attention heads.
        signature: (p, q, r); grades: retained grades, all by default.
        causal: a frame reads no later frame.
        temperature: "head" or "grade": one learned tau per head, or per head and grade; "dot": the ordinary score. See `set_score`.
        rotors: turn queries and keys by rotor positions (`RotorPositions`).
        base: of the rotor angles.
        value_terms: terms of v -> sum_i A_i v B_i per head and channel, which starts as the identity; 0 leaves v alone.
        dropout: of the attention weights.
        block, seed: draw the noise of the value terms, so that all else starts as in the attention without them.

    Raises UserError when there is no head or the components do not divide the head's width.
    """

    def __init__(
        self,
        width: int,
        heads: int = 4,
        signature: Sequence[int] = (3, 0, 0),
        grades: Sequence[int] | None = None,
        *,
        causal: bool = False,
        temperature: str = "head",
        rotors: bool = False,
        base: float = 10000.0,
        value_terms: int = 0,
        dropout: float = 0.0,
        block: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        try:
            self.algebra = Algebra(*signature, grades=None if grades is None else tuple(grades))
        except (TypeError, ValueError) as error:
            raise UserError(f"signature {signature} of a multivector attention: {error}") from None
        if heads < 1 or width < 1:
            raise UserError(f"heads {heads} and width {width} of a multivector attention: give at least 1 of each")
        if width % (heads * self.algebra.dim):
            raise UserError(
                f"width {width} does not split into {heads} heads of {self.algebra}: make it a multiple of "
                f"{heads * self.algebra.dim}"
            )
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.widths = (width, width, width)  # of queries, keys and values
        self.channels = width // heads // self.algebra.dim
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("metric", torch.empty(self.algebra.dim), persistent=False)
        self.register_buffer("group", torch.empty(self.algebra.dim, dtype=torch.int64), persistent=False)
        self.set_score(temperature)
        self.positions = RotorPositions(self.algebra, self.channels, base) if rotors else None
        self.values = None
        if value_terms:
            with drawn_apart(seed, "values", block):
                self.values = ValueTransform(self.algebra, heads, self.channels, value_terms)

    @torch.no_grad()
    def set_score(self, temperature: str) -> None:
        """How q and k are compared: <q ~k>_0 / tau with tau learned per "head" or per head and "grade", or the "dot" product of
        the coefficients at the fixed tau = sqrt(D / heads). tau starts there in all cases."""
        if temperature not in ("head", "grade", "dot"):
            raise UserError(
                f"temperature {temperature!r} of a multivector attention is not known: choose head, grade or dot"
            )
        like, algebra = self.qkv.weight, self.algebra
        groups = len(algebra.grades) if temperature == "grade" else 1
        start = torch.full(
            (self.heads, groups), math.log(like.shape[1] / self.heads) / 2, dtype=like.dtype, device=like.device
        )
        self.log_temperature = nn.Parameter(start, requires_grad=temperature != "dot")
        index = [algebra.grades.index(g) for g in algebra.grade.tolist()] if groups > 1 else [0] * algebra.dim
        self.group = torch.tensor(index, device=like.device)
        signs = torch.tensor(algebra.squares.tolist(), dtype=like.dtype, device=like.device)
        self.metric = torch.ones_like(signs) if temperature == "dot" else signs

    @torch.no_grad()
    def set_widths(self, score: int, values: int) -> None:
        """Take queries and keys of `score` numbers and values of `values` from maps that stand in the place of `qkv`; tau starts at
        the root of a head's score width."""
        self.log_temperature.add_(math.log(score / self.widths[0]) / 2)
        self.widths = (score, score, values)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); padded frames influence no real one as long as they are finite."""
        if not self.causal:  # which reads no frames
            frames.check(x)
        time = x.shape[1]
        q, k, v = (
            part.unflatten(-1, (self.heads, -1, self.algebra.dim)).transpose(1, 2)
            for part in self.qkv(x).split(self.widths, -1)
        )
        if self.positions is not None:
            turn = self.positions(time).to(q.dtype)
            q, k = (torch.einsum("tcij,bhtcj->bhtci", turn, m) for m in (q, k))
        if self.values is not None:
            v = self.values(v)
        scale = self.metric * torch.exp(-self.log_temperature.float())[:, self.group]
        q = q * scale.to(q.dtype)[:, None, None, :]
        mask = None if self.causal else frames.mask[:, None, None, :]
        mixed = F.scaled_dot_product_attention(
            q.flatten(-2),
            k.flatten(-2),
            v.flatten(-2),
            attn_mask=mask,
            is_causal=self.causal,
            scale=1.0,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        return f"algebra={self.algebra}, heads={self.heads}, channels={self.channels}, causal={self.causal}"


class RotorPositions(nn.Module):
    """Position t turns channel c by the rotor R = exp(-t B_c / 2): M -> R M ~R, as a (T, channels, dim, dim) matrix.

    Since R_s and R_t of one channel commute, scores depend on the distance t - s alone. Each channel starts with its rotation in
    one plane that the metric turns (e1 e2, then e3 e4, ... in turn), at the rates base^(-c / channels) of RoPE; in Cl(2) with
    grade 1 this is RoPE. The bivectors are learned and may leave those planes.
    """

    def __init__(self, algebra: Algebra, channels: int, base: float = 10000.0, learned: bool = True) -> None:
        super().__init__()
        full, n = algebra.full, algebra.n
        planes = [(i, j) for i in range(n) for j in range(i + 1, n)]
        # e_i e_j squares to -s_i s_j: a rotation when both squares are equal and not 0
        turning = [p for p, (i, j) in enumerate(planes) if algebra.metric[i] * algebra.metric[j] > 0]
        if not turning:
            raise UserError(f"{algebra} has no plane to rotate in: rotor positions need two vectors with equal squares")
        disjoint, used = [], set()
        for p in turning:
            if used.isdisjoint(planes[p]):
                disjoint.append(p)
                used.update(planes[p])
        rates = base ** (-torch.arange(channels, dtype=torch.float64) / channels)
        bivectors = torch.zeros(channels, len(planes), dtype=torch.float64)
        bivectors[torch.arange(channels), torch.tensor(disjoint)[torch.arange(channels) % len(disjoint)]] = rates
        self.bivectors = nn.Parameter(bivectors.float(), requires_grad=learned)
        # generator of M -> R M ~R for each plane: M -> -(B M - M B) / 2, on the retained components (it keeps grades)
        # (by numpy, so that a model which is built on no device, to be loaded, has their values too)
        table, kept = full.product("commutator").dense(), full.conversion(algebra)[0]
        generators = -table[full.slice(2)][:, kept][:, :, kept].swapaxes(1, 2)
        self.register_buffer("generators", torch.from_numpy(generators.astype("float32")), persistent=False)

    def forward(self, time: int) -> Tensor:
        """(T, channels, dim, dim) matrices of positions 0 .. T - 1, in fp64 where the device has it."""
        wide = torch.float32 if self.bivectors.device.type == "mps" else torch.float64
        generator = torch.einsum("cp,pij->cij", self.bivectors.to(wide), self.generators.to(wide))
        t = torch.arange(time, device=generator.device, dtype=wide)
        return torch.linalg.matrix_exp(t[:, None, None, None] * generator)


class ValueTransform(nn.Module):
    """v -> sum_i A_i v B_i for each head and channel, A and B multivectors; the first term starts as the identity."""

    def __init__(self, algebra: Algebra, heads: int, channels: int, terms: int, noise: float = 1e-3) -> None:
        super().__init__()
        if 0 not in algebra.grades:
            raise UserError(f"a value transformation starts from the scalar 1: retain grade 0 (got {algebra})")
        start = noise * torch.randn(2, terms, heads, channels, algebra.dim)
        start[:, 0] = 0
        start[:, 0, ..., 0] = 1
        self.left, self.right = nn.Parameter(start[0].clone()), nn.Parameter(start[1].clone())
        self.register_buffer("table", torch.from_numpy(algebra.product().dense()).float(), persistent=False)

    def forward(self, v: Tensor) -> Tensor:
        """(B, heads, T, channels, dim) to the same."""
        left, right = self.left.float(), self.right.float()
        matrix = contract_two_sided(self.table.float(), left, right).sum(0).to(v.dtype)
        return torch.einsum("hcij,bhtcj->bhtci", matrix, v)
