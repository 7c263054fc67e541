"""What the code generators print: a bilinear map, or its backward pass, as sums of products of named inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from geomix.algebra.structure_constants import SignedTriplets

# one term: sign, then (input name, component) of each factor
Term = tuple[int, tuple[str, int], tuple[str, int]]


@dataclass(frozen=True)
class SumsOfProducts:
    """A kernel body: `outputs[name][c]` is the sum of its terms; `inputs[name]` is a number of components."""

    name: str
    inputs: dict[str, int]
    outputs: dict[str, tuple[tuple[Term, ...], ...]]


@lru_cache(maxsize=256)
def forward_sums(table: SignedTriplets) -> SumsOfProducts:
    """out = f(a, b)."""
    terms: list[list[Term]] = [[] for _ in range(table.out)]
    for i, j, k, s in _rows(table):
        terms[k].append((s, ("a", i), ("b", j)))
    return SumsOfProducts(
        f"product_{table.key}", {"a": table.left, "b": table.right}, {"out": tuple(map(tuple, terms))}
    )


@lru_cache(maxsize=256)
def backward_sums(table: SignedTriplets) -> SumsOfProducts:
    """(da, db) from a, b and g = d out, in one pass over memory."""
    da: list[list[Term]] = [[] for _ in range(table.left)]
    db: list[list[Term]] = [[] for _ in range(table.right)]
    for i, j, k, s in _rows(table):
        da[i].append((s, ("g", k), ("b", j)))
        db[j].append((s, ("g", k), ("a", i)))
    outputs = {"da": tuple(map(tuple, da)), "db": tuple(map(tuple, db))}
    return SumsOfProducts(f"product_backward_{table.key}", {"a": table.left, "b": table.right, "g": table.out}, outputs)


def _rows(table: SignedTriplets):
    return zip(*(v.tolist() for v in (table.i, table.j, table.k, table.sign)), strict=True)
