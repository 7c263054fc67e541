"""Phase 2's components as they were declared before the run: what each replaces, what it can express, and its controls.

A component that can express nothing which the scalar baseline cannot, at a budget that the two share, is none: `DROPPED` lists
those that were and says why. `studies.algebra.expression` measures what is claimed here, and a test holds the claims to it.
"""

from __future__ import annotations

from dataclasses import dataclass

SAME_WIDTH = "FLOPs"
SAME_SIZE = "parameters"


@dataclass(frozen=True)
class Component:
    """A component of phase 2.

    arm : its name in `algebra.components.arms`; what : what it replaces
    budget : what it holds of the scalar baseline, `FLOPs` or `parameters`
    expresses : what it can express that a scalar form of that budget cannot
    scalars : scalar forms that hold the budget; shuffled, gauge : the same under random signs, and under other names; None for none
    score, values : rank of the score form x'My and of the value map of one head that it reaches at width 64 with two heads, and
        that its scalar forms reach, (ours, theirs); None where it is not its business
    """

    arm: str
    what: str
    budget: str
    expresses: str
    scalars: tuple[str, ...]
    shuffled: str | None = None
    gauge: str | None = None
    score: tuple[int, int] | None = None
    values: tuple[int, int] | None = None


def _tenth(role: str, **ranks: tuple[int, int]) -> Component:
    which = {"q": "W_q", "k": "W_k", "v": "W_v", "qkv": "W_q, W_k and W_v"}[role]
    return Component(
        role,
        f"{which} as A x B over Cl(3), tied per grade, one term: 392 numbers for 4,160",
        SAME_WIDTH,
        "full rank with a tenth of the numbers; as many numbers of a scalar map give rank 3",
        (f"{role}_low_rank",),
        f"{role}_shuffled",
        "qkv_gauge" if role == "qkv" else None,
        **ranks,
    )


_WIDE = "at the dense maps' parameters {pair} are wide enough for rank 64 a head, which two maps of 64 x 32 cannot have"
COMPONENTS: dict[str, Component] = {
    component.arm: component
    for component in (
        _tenth("q", score=(32, 3)),
        _tenth("k", score=(32, 3)),
        _tenth("v", values=(32, 3)),
        _tenth("qkv", score=(32, 3), values=(32, 3)),
        Component(
            "qkv_even", "`qkv` with A and B even, as rotors are: 328 numbers a map", SAME_WIDTH,
            "full rank with fewer numbers still, by turns of the grades alone", ("qkv_low_rank",), "qkv_even_shuffled",
            score=(32, 3), values=(32, 3),
        ),
        Component(
            "qkv_blades", "`qkv` with A and B vectors, which are blades: 312 numbers a map", SAME_WIDTH,
            "full rank by pairs of reflections alone; every product A x B with two 2-blades is one of them", ("qkv_low_rank",),
            "qkv_blades_shuffled", score=(32, 3), values=(32, 3),
        ),
        Component(
            "qk_wide", "W_q and W_k as sums of four A x B over Cl(3), 176 wide", SAME_SIZE,
            _WIDE.format(pair="queries and keys"), ("scalar", "qk_wide_low_rank"), "qk_wide_shuffled", score=(64, 32),
        ),
        Component(
            "v_wide", "W_v and the output map as sums of four A x B over Cl(3), 192 wide", SAME_SIZE,
            _WIDE.format(pair="values"), ("scalar", "v_wide_low_rank"), "v_wide_shuffled", values=(64, 32),
        ),
        Component(
            "qkv_wide", "all four maps as sums of four A x B over Cl(3), 176 wide", SAME_SIZE,
            _WIDE.format(pair="queries, keys and values"), ("scalar", "qkv_wide_low_rank"), "qkv_wide_shuffled",
            "qkv_wide_gauge", score=(64, 32), values=(64, 32),
        ),
        Component(
            "qk_wide_21", "`qk_wide` over Cl(2,1), whose score <q ~k>_0 is not definite", SAME_SIZE,
            "the rank of `qk_wide`, and self-similarities of either sign from maps that are tied per grade",
            ("scalar", "qk_wide_low_rank"), "qk_wide_21_shuffled", score=(64, 32),
        ),
        Component(
            "qk_wide_13", "`qk_wide` over Cl(1,3), eight terms, 160 wide", SAME_SIZE,
            "as `qk_wide_21`, in the algebra of space-time", ("scalar", "qk_wide_low_rank"), "qk_wide_13_shuffled",
            score=(64, 32),
        ),
        Component(
            "positions", "rotors R M ~R of the position turn queries and keys; no position table", SAME_SIZE,
            "scores that depend on the distance of two tokens alone, also beyond the table; `rope` can express that too",
            ("scalar", "rope"),
        ),
    )
}  # fmt: skip

DROPPED = {
    "embeddings": "token embeddings as multivectors are the same numbers under other names: it ties exactly",
    "qk": "behind a free linear map the score <q ~k>_0 with learned temperatures scales rows of W_q",
    "values": "behind a free linear map v -> A v B is absorbed by W_v",
    "W_q, W_k or W_v alone at equal parameters": "eleven terms A x B have as many numbers as the dense map of the same width, "
    "which holds all that they can be",
}
"""What was a component once, or could be thought one, and what absorbs it."""
