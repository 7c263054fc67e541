"""`geomix bench product`: bilinear products of Clifford algebras, every form beside the memory floor of the same machine."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.benchmarks import reference_forms
from geomix.benchmarks.clock import measure, prepared
from geomix.benchmarks.forms import BACKWARD, FORWARD, TOLERANCES, Form, compare, speed_up
from geomix.benchmarks.options import Common, option
from geomix.benchmarks.output import Panel, draw_curves, write_csv
from geomix.errors import UserError
from geomix.files import write_json
from geomix.kernels.product import naive, product
from geomix.kernels.product.sums_of_products import forward_sums
from geomix.models.multivector import MultivectorLinear
from geomix.training.devices import device_name, keep_freed_memory

CASES = ((3, 3), (4, 3), (4, 4), (5, 3))
BATCHES = (1, 8, 32, 128, 1024, 8192, 65536)
GPU_BATCHES = (1 << 18, 1 << 20, 1 << 22)
COLUMNS = (
    "case", "form", "B", "direction", "median_us", "floor_us", "error", "bytes", "gb_per_s", "copy_fraction", "device", "threads",
)  # fmt: skip
# [Parslow2026]'s three forms first, then those of public libraries, then ours
FORMS = {
    "gather_scatter": "gather + scatter_add (article)", "opt": "opt (article; wrong when truncated)", "atomic": "atomic Triton (article)",
    "index_add": "gather + index_add", "einsum": "einsum, Cayley table", "outer_matmul": "outer product @ table",
    "sign_matrix": "sign matrix, bmm", "compiled_unrolled": "torch.compile, unrolled", "clifra": "clifra",
    "geomix": "geomix", "geomix_component_last": "geomix, components last",
}  # fmt: skip
FORWARD_ALONE = ("atomic", "opt", "clifra")


def _cases(text: str) -> tuple[tuple[int, int], ...]:
    """`3,3 5,3` to pairs (n, k): n vectors, grades up to k."""
    found = re.findall(r"(?<!\S)([1-9]),([1-9])(?!\S)", text)
    if not found or len(found) != len(text.split()) or any(k > n for n, k in found):
        raise argparse.ArgumentTypeError(f"{text!r}: give pairs n,k with 1 <= k <= n <= 9, such as '3,3 5,3'")
    return tuple((int(n), int(k)) for n, k in found)


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench product`; it writes product.csv, product.json, product.png and product.svg."""

    device: str = option("auto", "auto, cpu, cuda or mps")
    cases: tuple[tuple[int, int], ...] = option(
        CASES, "n,k: n vectors, grades up to k, such as '3,3 5,3' (default: those of [Parslow2026])", parse=_cases
    )
    batches: tuple[int, ...] = option((), "products at once (default: 1 to 65536; on a GPU up to 4194304)")
    forms: tuple[str, ...] = option((), f"some of {' '.join(FORMS)} (default: all)")
    seconds: float = option(0.3, "measuring time of a row")
    compile_terms: int = option(64, "largest table given to torch.compile, whose cold start grows to minutes")
    linear: bool = option(True, "also time linear layers")


def run(options: Options) -> None:
    """Measure, print and write the table and the plot."""
    if unknown := [form for form in options.forms if form not in FORMS]:
        raise UserError(f"--forms {unknown[0]}: choose some of {', '.join(FORMS)}")
    device = prepared(options.device, options.threads)
    keep_freed_memory()  # for every form: page faults of the allocator are not measured
    rows, ratios = [], {}
    for n, k in options.cases:
        for batch in options.batches or BATCHES + (GPU_BATCHES if device.type == "cuda" else ()):
            found, faster = _products(Algebra.truncated(n, k), f"n{n} k{k}", batch, options, device)
            rows, ratios = rows + found, ratios | faster
    for channels in (16, 64) if options.linear else ():
        rows += _linear(channels, options, device)
    write_csv(options.out / "product.csv", COLUMNS, rows)
    write_json(options.out / "product.json", ratios)
    _draw([row for row in rows if row["form"] in FORMS], options)
    print(f"wrote {options.out}/product.csv, product.json, product.png, product.svg")


def _race(
    case: str, batch: int, forms: Mapping[str, Form], truth: Mapping[str, list[Tensor]], moved: Mapping[str, int], share: float,
    options: Options, device: torch.device,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:  # fmt: skip
    """Rows of all forms and directions, timed by turns, and what `geomix` is faster than among those that agree with the truth.

    moved : bytes that forward has to move; with backward it is `share` times that. The floor: the plainest kernel moves as many.
    """
    calls: dict[Any, Callable[[], Any]] = {}
    for size in set(moved.values()):
        a, b, out = (torch.ones(size // 12, device=device) for _ in range(3))
        calls["floor", size] = lambda a=a, b=b, out=out: torch.add(a, b, out=out)
    for name, form in forms.items():
        calls[name, FORWARD] = form.plain or form.forward
        if name not in FORWARD_ALONE:
            calls[name, BACKWARD] = form.backward
    # the atomic kernel has no backward pass, so that nothing is said to be faster than it
    agrees = {n: compare(form.outcome(n != "atomic"), truth[n], TOLERANCES[torch.float32]) for n, form in forms.items()}
    times = measure(calls, seconds=options.seconds, device=device)
    rows, ratios = [], {}
    print(f"-- {case}, B = {batch}")
    for (name, way), timing in times.items():
        if name == "floor":
            continue
        factor = 1 if way == FORWARD else share
        median, floor = 1e6 * timing.seconds, 1e6 * factor * times["floor", moved[name]].seconds
        found, size = agrees[name], int(factor * moved[name])
        error = found.value if way == FORWARD else found.gradient
        rows.append({
            "case": case, "form": name, "B": batch, "direction": way, "median_us": median, "floor_us": floor, "error": error,
            "bytes": size, "gb_per_s": size / median / 1e3, "copy_fraction": floor / median,
            "device": device_name(device), "threads": options.threads,
        })  # fmt: skip
        ours, faster = times.get(("geomix", way)), None
        if name == "geomix":
            ratios.setdefault(f"{case} B={batch} {way}", {})["times_floor"] = round(median / floor, 3)
        elif ours and (faster := speed_up(ours, timing, agrees["geomix"], found)):
            ratios.setdefault(f"{case} B={batch} {way}", {})[f"speedup_over_{name}"] = round(faster, 2)
        said = f"  geomix is {faster:.1f} x as fast" if faster else "" if found else "  differs, or has no gradients"
        print(f"   {name:<40} {way:<17} {median:>12.1f} us {median / floor:>8.1f} x floor   error {error:.1e}{said}")
    return rows, ratios


def _products(algebra: Algebra, case: str, batch: int, options: Options, device: torch.device):
    table = algebra.product()
    operands = [torch.randn(algebra.dim, batch, device=device) for _ in range(3)]
    wide = [x.double() for x in operands]
    truth = [naive.bilinear(table, *wide[:2]), *naive.bilinear_backward(table, *wide)]
    forms = {}
    for name in options.forms or FORMS:
        if made := _form(name, algebra, device, options.compile_terms):
            function, order = made
            if order is None:  # components first, as the definition has them
                (a, b, grad), restore = (x.clone() for x in operands), lambda x: x
            else:
                (a, b, grad), restore = (
                    (x[order].t().contiguous() for x in operands),
                    lambda x, o=order: x.t()[o.argsort()],
                )
            x, y = (v.clone().requires_grad_() for v in (a, b))
            forms[name] = Form(
                lambda f=function, x=x, y=y: f(x, y), (x, y), grad, lambda f=function, a=a, b=b: f(a, b), restore
            )
    size = 12 * algebra.dim * batch  # forward: a, b, out; with backward a, b, g, out, da, db and a, b again
    return _race(case, batch, forms, dict.fromkeys(forms, truth), dict.fromkeys(forms, size), 8 / 3, options, device)


def _form(
    name: str, algebra: Algebra, device: torch.device, compile_terms: int
) -> tuple[Callable, Tensor | None] | None:
    """The function of a form and the order of its blades when they come last (None: first); None where it does not apply."""
    table, order = algebra.product(), torch.arange(algebra.dim, device=device)
    if name == "geomix":
        return lambda a, b: product(table, a, b, components=0), None
    if name == "geomix_component_last":
        return lambda a, b: product(table, a, b), order
    if name == "compiled_unrolled":
        return (_compiled(table), None) if len(table) <= compile_terms else None
    if name == "clifra":  # an optional peer, for full algebras; it orders blades by bit mask
        if find_spec("clifra") is None or len(algebra.grades) <= algebra.n:
            return None
        import clifra

        other = clifra.make_algebra(algebra.p, algebra.q, algebra.r, device=str(device))
        return other.geometric_product, torch.as_tensor(algebra.blades.argsort(), device=device)
    if name == "atomic" and device.type != "cuda":
        return None
    return lambda a, b: getattr(reference_forms, name)(algebra if name == "opt" else table, a, b), order


def _compiled(table) -> Callable:
    """torch.compile of the unrolled form as straight-line code (no table to guard on), one static compilation per batch size."""
    rows = [
        " ".join(f"{'+' if s > 0 else '-'} {u}[{i}] * {v}[{j}]" for s, (u, i), (v, j) in terms)
        for terms in forward_sums(table).outputs["out"]
    ]
    names: dict = {"torch": torch}
    exec(f"def unrolled(a, b):\n    return torch.stack([{', '.join(rows)}])", names)
    torch._dynamo.reset()
    return torch.compile(names["unrolled"], dynamic=False)


def _linear(channels: int, options: Options, device: torch.device, tokens: int = 4096) -> list[dict[str, Any]]:
    """Rows of a multivector linear map beside F.linear at equal parameters and at equal FLOPs."""
    algebra = Algebra(3)
    layer = MultivectorLinear(algebra, channels, channels, terms=1).to(device)
    parameters, width = sum(p.numel() for p in layer.parameters()), channels * algebra.dim
    x = torch.randn(tokens, channels, algebra.dim, device=device, requires_grad=True)
    grad = torch.randn_like(x)
    ours = list(layer.parameters())

    def dense() -> Tensor:
        wide = F.linear(x.double().flatten(1), layer.weight_matrix().double()).view_as(x)
        return wide + F.pad(layer.bias.double(), (0, algebra.dim - 1))

    truth, forms = {}, {}
    for name, function in (("multivector_linear", layer), ("multivector_products", layer.products)):
        forms[name] = Form(lambda f=function: f(x), [x, *ours], grad)
        truth[name] = Form(dense, [x, *ours], grad).outcome()
    if find_spec("cliffordlayers"):  # an optional peer (MIT); its table is its own: compared with itself
        from cliffordlayers.nn.modules.cliffordlinear import CliffordLinear

        peer = CliffordLinear([1, 1, 1], channels, channels).to(device)
        name = "cliffordlayers CliffordLinear"
        forms[name] = Form(lambda: peer(x), [x, *peer.parameters()], grad)
        truth[name] = forms[name].outcome()
    for size, equal in ((max(1, round(parameters**0.5)), "parameters"), (width, "FLOPs")):
        y, weight = (torch.randn(n, size, device=device, requires_grad=True) for n in (tokens, size))
        name, g = f"F.linear {size}x{size} (equal {equal})", torch.randn(tokens, size, device=device)
        forms[name] = Form(lambda y=y, w=weight: F.linear(y, w), [y, weight], g)
        truth[name] = Form(lambda y=y, w=weight: F.linear(y.double(), w.double()), [y, weight], g).outcome()
    moved = {n: 8 * form.leaves[0].numel() + 4 * sum(w.numel() for w in form.leaves[1:]) for n, form in forms.items()}
    case = f"linear Cl(3), {channels} channels ({parameters} parameters)"
    return _race(case, tokens, forms, truth, moved, 2.5, options, device)[0]


def _draw(rows: list[dict[str, Any]], options: Options) -> None:
    """Median time against batch size, a panel a case and direction, with the floor."""
    cases, ways = dict.fromkeys(row["case"] for row in rows), (FORWARD, BACKWARD)
    panels = []
    for way in ways:
        panels.append([])
        for case in cases:
            shown = [row for row in rows if (row["case"], row["direction"]) == (case, way)]
            curves: dict[str, list] = {}
            for row in shown:
                curves.setdefault(FORMS[row["form"]], []).append((row["B"], row["median_us"]))
            floor = {row["B"]: row["floor_us"] for row in shown}
            panels[-1].append(Panel(f"{case}, {way}", "batch B", "median time, µs", curves, list(floor.items())))
    if cases:
        draw_curves("product", options.out, panels)
