"""Phase 3: the feed-forward layers of a model made of linear maps that share their numbers in different ways.

Each arm replaces both maps of every feed-forward block. The algebra-valued maps are y_o = sum_c w_oc x_c with w in the algebra (left
multiplication, what complex and quaternion networks use): a table of L components spends one number where a dense map spends L,
and any table of non-zero signs spans exactly L maps, so that a shuffled table has the same capacity. The two-sided maps are
the article's sum_c A_oc x_c B_oc read literally, whose span depends on the table (32 of 64 maps for Cl(3), about 57 for random signs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.algebra.operations import contract_two_sided
from geomix.algebra.structure_constants import SignedTriplets
from geomix.errors import UserError
from geomix.models.transformer_lm import TransformerLM
from geomix.studies.algebra.arms import TOLERANCE
from geomix.studies.algebra.language_models import LanguageJob, attention_macs, run_language_job
from geomix.studies.algebra.tables import span_rank
from geomix.training.seeding import derive_seed, seed_all

# arm -> (what it is, which budget it holds)
ARCHITECTURES = {
    "ordinary": ("dense, half the inner width of the wider scalar model", "none"),
    "wide_scalar": ("dense, as wide as the parameters allow", "parameters"),
    "low_rank": ("each map a product of two thin ones", "parameters"),
    "complex": ("complex-valued maps", "parameters"),
    "quaternion": ("quaternion-valued maps", "parameters"),
    "grouped": ("four diagonal blocks, channels shuffled", "parameters"),
    "clifford": ("Cl(3)-valued maps, left multiplication", "parameters"),
    "shuffled": ("the same under a table of random signs, another for each seed", "parameters"),
    "clifford_two_sided": ("the article's sum A x B over Cl(3)", "parameters"),
    "shuffled_two_sided": ("the same under a table of random signs, another for each seed", "parameters"),
    "scalar_flops": ("dense, as wide as Clifford's FLOPs allow", "flops"),
}
GROUPS = 4
CL3 = Algebra(3)


class AlgebraLinear(nn.Module):
    """y_o = sum_c w_oc x_c + b with algebra-valued weights under a table of dim components; widths are multiples of dim.

    With `two_sided`, y_o = sum_c (a_oc x_c) b_oc + b. Parameters: in x out / dim (twice that when two-sided), and out for the bias.
    """

    def __init__(self, inputs: int, outputs: int, table: SignedTriplets, two_sided: bool = False) -> None:
        super().__init__()
        dim = table.out
        if inputs % dim or outputs % dim:
            raise UserError(f"widths {inputs} and {outputs} of an algebra-valued map must be multiples of {dim}")
        self.register_buffer("table", torch.from_numpy(table.dense()).float(), persistent=False)
        shape = (2 if two_sided else 1, outputs // dim, inputs // dim, dim)
        # outputs of the variance of the inputs
        variance = 1 / inputs if not two_sided else (inputs * dim) ** -0.5
        self.weight = nn.Parameter(torch.randn(shape) * variance**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def matrix(self) -> Tensor:
        """(out, in) matrix of the map."""
        if len(self.weight) == 2:
            blocks = contract_two_sided(self.table, self.weight[0], self.weight[1])
        else:
            blocks = torch.einsum("oci,ijk->ockj", self.weight[0], self.table)
        return blocks.transpose(1, 2).reshape(len(self.bias), -1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return F.linear(x, self.matrix().to(x.dtype), self.bias)


class LowRankLinear(nn.Module):
    """y = P Q x + b with an inner width `rank`."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs)
        nn.init.normal_(self.first.weight, std=inputs**-0.5)
        nn.init.normal_(self.second.weight, std=rank**-0.5)
        nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return self.second(self.first(x))


class GroupedLinear(nn.Module):
    """`groups` diagonal blocks, outputs shuffled between the groups so that the next map mixes them; widths are multiples of groups."""

    def __init__(self, inputs: int, outputs: int, groups: int = GROUPS) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(groups, outputs // groups, inputs // groups) * (inputs // groups) ** -0.5
        )
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        y = torch.einsum("goi,...gi->...og", self.weight, x.unflatten(-1, (len(self.weight), -1)))
        return y.flatten(-2) + self.bias


def _dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def table_of(arm: str, seed: int) -> SignedTriplets | None:
    """The table of an algebra-valued arm; the shuffled ones draw their signs by seed."""
    if arm in ("complex", "quaternion"):
        return (Algebra(0, 1) if arm == "complex" else Algebra(3).even).product()
    if arm.startswith("shuffled"):
        return CL3.product().shuffled(derive_seed("algebra", "architectures", seed) % 2**32)
    return CL3.product() if arm.startswith("clifford") else None


def maker(arm: str, width: int, inner: int, seed: int) -> Callable[[int, int], nn.Module]:
    """inputs, outputs -> a linear map of an arm's kind."""
    table = table_of(arm, seed)
    if table is not None:
        return lambda i, o: AlgebraLinear(i, o, table, arm.endswith("two_sided"))
    if arm == "grouped":
        return GroupedLinear
    if arm == "low_rank":  # thin enough that a wider inner layer pays for it
        return lambda i, o: LowRankLinear(i, o, max(1, width * 2 // 5))
    return _dense


def feed_forward_size(arm: str, width: int, inner: int) -> dict[str, int]:
    """Parameters (biases included) and multiply-adds a token of one feed-forward block of an arm."""
    with torch.device("meta"):
        make = maker(arm, width, inner, 0)
        layers = make(width, inner), make(inner, width)
    parameters = sum(p.numel() for layer in layers for p in layer.parameters())
    if arm == "low_rank":
        macs = sum(layer.first.weight.numel() + layer.second.weight.numel() for layer in layers)
    elif arm == "grouped":
        macs = sum(layer.weight.numel() for layer in layers)
    else:
        macs = 2 * width * inner  # an algebra-valued map is applied as the matrix that it is
    return {"parameters": parameters, "macs": macs}


@lru_cache(maxsize=64)
def inner_width(arm: str, width: int, ff_dim: int) -> int:
    """Inner width of an arm's feed-forward: nearest to the budget of the dense block of inner width `ff_dim`.

    Raises UserError where no inner width comes within 5 %.
    """
    if arm == "ordinary":
        return ff_dim // 2
    if arm == "wide_scalar":
        return ff_dim
    if arm == "scalar_flops":
        return inner_width("clifford", width, ff_dim)
    table = table_of(arm, 0)
    step = table.out if table is not None else GROUPS
    budget = feed_forward_size("wide_scalar", width, ff_dim)["parameters"]
    count = lambda inner: feed_forward_size(arm, width, inner)["parameters"]
    inner = step
    while count(inner + step) <= budget:
        inner += step
    best = min((inner, inner + step), key=lambda i: abs(math.log(count(i) / budget)))
    if abs(count(best) / budget - 1) > TOLERANCE:
        raise UserError(
            f"arm {arm} of phase 3 has no inner width within 5 % of {budget:,} parameters at width {width}: choose another width or ff_dim"
        )
    return best


def describe_architecture(arm: str, width: int, ff_dim: int, seeds: list[int]) -> dict[str, Any]:
    """What is known of an arm before it is trained: inner width, sizes of one feed-forward block, span of its table."""
    what, held = ARCHITECTURES[arm]
    inner = inner_width(arm, width, ff_dim)
    found = {"what": what, "held": held, "inner": inner, "block": feed_forward_size(arm, width, inner)}
    table = table_of(arm, seeds[0])
    if table is not None:
        two_sided = arm.endswith("two_sided")
        found["span"] = span_rank(table) if two_sided else table.out
        found["of"] = table.out**2
        found["tying"] = f"{2 if two_sided else 1} x {table.out} numbers for each {table.out} x {table.out} block"
    else:
        found["tying"] = "none"
    return found


def change_feed_forward(arm: str, model: TransformerLM, seed: int) -> None:
    """Replace the feed-forward maps of every block by the arm's, in place."""
    width, ff_dim = model.config.width, model.config.ff_dim
    inner = inner_width(arm, width, ff_dim)
    for index, block in enumerate(model.blocks):
        seed_all(seed, "feed-forward", index)
        make = maker(arm, width, inner, seed)
        block.ff = nn.Sequential(make(width, inner), nn.GELU(), make(inner, width))


def run_architecture(
    settings: Mapping[str, Any], data: str | Path, *, run: str, state: str | Path, log_every: int, out: str | Path
) -> dict[str, Any]:
    """Train all seeds of an arm of phase 3 on the language task and write its record."""
    arm, model = settings["arm"], settings["model"]
    about = describe_architecture(arm, model["width"], model["ff_dim"], settings["seeds"])
    job = LanguageJob(
        settings,
        Path(data),
        change=lambda lm, seed: change_feed_forward(arm, lm, seed),
        macs=lambda lm: attention_macs(lm) + lm.config.blocks * about["block"]["macs"],
        run=run,
        state=Path(state),
        log_every=log_every,
    )
    return run_language_job(job, about, out)
