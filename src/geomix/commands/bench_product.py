"""`geomix bench product`: bilinear products of Clifford algebras, every form beside the memory floor of the same machine."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import statistics
import time
from importlib.util import find_spec
from pathlib import Path

from geomix.commands.arguments import positive, whole, wholes
from geomix.errors import UserError
from geomix.files import atomic_path, write_text

CASES = ((3, 3), (4, 3), (4, 4), (5, 3))
BATCHES = (1, 8, 32, 128, 1024, 8192, 65536)
GPU_BATCHES = (1 << 18, 1 << 20, 1 << 22)
COLUMNS = (
    "case", "form", "B", "direction", "median_us", "floor_us", "error", "bytes", "gb_per_s", "copy_fraction", "device", "threads",
)  # fmt: skip
# the article's three forms first, then those of public libraries, then ours
FORMS = (
    "gather_scatter", "opt", "atomic", "index_add", "einsum", "outer_matmul", "sign_matrix", "compiled_unrolled", "clifra",
    "geomix", "geomix_component_last",
)  # fmt: skip
LABELS = {
    "gather_scatter": "gather + scatter_add (article)", "opt": "opt (article; wrong when truncated)", "atomic": "atomic Triton (article)",
    "index_add": "gather + index_add", "einsum": "einsum, Cayley table", "outer_matmul": "outer product @ table",
    "sign_matrix": "sign matrix, bmm", "compiled_unrolled": "torch.compile, unrolled", "clifra": "clifra",
    "geomix": "geomix", "geomix_component_last": "geomix, components last",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `geomix bench product`."""
    parser.add_argument(
        "--out", type=Path, default=Path("results/bench"), help="folder of product.csv, .json, .png and .svg"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--threads", type=whole(), default=1, help="CPU threads (default 1)")
    parser.add_argument(
        "--cases",
        type=_cases,
        default=None,
        help="e.g. '3,3 5,3': n,k separated by blanks (default: the article's four)",
    )
    parser.add_argument(
        "--batches", type=wholes, default=None, help="e.g. '1 128 65536' (default: 1 to 65536; on a GPU up to 4194304)"
    )
    parser.add_argument("--forms", default=None, help=f"some of: {' '.join(FORMS)}")
    parser.add_argument("--seconds", type=positive, default=0.3, help="measuring time a row (default 0.3)")
    parser.add_argument(
        "--compile-terms",
        type=int,
        default=64,
        help="largest table given to torch.compile, whose cold start grows to minutes",
    )
    parser.add_argument("--linear", action=argparse.BooleanOptionalAction, default=True, help="also time linear layers")


def _cases(text: str) -> tuple[tuple[int, int], ...]:
    """`3,3 5,3` to pairs (n, k): n vectors, grades up to k."""
    found = re.findall(r"(?<!\S)([1-9]),([1-9])(?!\S)", text)
    if not found or len(found) != len(text.split()) or any(k > n for n, k in found):
        raise argparse.ArgumentTypeError(f"{text!r}: give pairs n,k with 1 <= k <= n <= 9, such as '3,3 5,3'")
    return tuple((int(n), int(k)) for n, k in found)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print and write the table and the plot."""
    import torch

    from geomix.algebra import Algebra
    from geomix.kernels.product.cpu import keep_freed_memory
    from geomix.training.devices import device_name

    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: this machine shows no CUDA device; use --device cpu")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    if device.type == "cpu" and keep_freed_memory():
        print("glibc keeps freed memory, for every form: page faults of the allocator are not measured")
    cases = arguments.cases or CASES
    batches = arguments.batches or BATCHES + (GPU_BATCHES if device.type == "cuda" else ())
    forms = arguments.forms.split() if arguments.forms else list(FORMS)
    for form in forms:
        if form not in FORMS:
            raise UserError(f"--forms {form}: choose some of {', '.join(FORMS)}")
    measure = Timer(device, arguments.seconds)
    rows = []
    for n, k in cases:
        algebra = Algebra.truncated(n, k)
        for batch in batches:
            for form in forms:
                rows += _product_rows(algebra, f"n{n} k{k}", batch, form, device, measure, arguments)
            _show(rows, f"n{n} k{k}", batch)
    if arguments.linear:
        rows += _linear_rows(device, measure)
    name = device_name(device)
    for row in rows:
        row.update(device=name, threads=arguments.threads)
    _write(rows, arguments.out)
    print(f"wrote {arguments.out}/product.csv, product.json, product.png, product.svg")


class Timer:
    """Median wall time of a call in microseconds, with at least 3 and at most 2,000 repeats in `seconds`."""

    def __init__(self, device, seconds: float) -> None:
        self.device, self.seconds = device, seconds

    def __call__(self, function) -> float:
        """CUDA events on a GPU (a burst of calls each, so that launches overlap as they do in a model), a clock on a CPU."""
        import torch

        cuda = self.device.type == "cuda"
        function()
        function()
        times, stop = [], time.perf_counter() + self.seconds
        while len(times) < 3 or (time.perf_counter() < stop and len(times) < 2000):
            if cuda:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(10):
                    function()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end) * 100)  # ms for 10 calls -> us a call
            else:
                begin = time.perf_counter()
                function()
                times.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(times)


def _product_rows(algebra, case, batch, form, device, measure, arguments):
    """Rows (forward, forward+backward) of one form, or none where it does not apply."""
    import torch

    from geomix.kernels.product import naive, product, seed_forms

    table = algebra.product()
    function, component_major = None, False
    if form in ("geomix", "geomix_component_last"):
        component_major = form == "geomix"
        function = lambda a, b: product(table, a, b, components=0 if component_major else -1)
    elif form == "compiled_unrolled":
        if len(table) <= arguments.compile_terms:  # larger ones take minutes to compile cold
            component_major, function = True, _compiled(table)
    elif form == "atomic":
        if device.type == "cuda":
            function = lambda a, b: seed_forms.atomic(table, a, b)
    elif form == "clifra":
        function, order = _clifra(algebra, device)
    else:
        function = (
            (lambda a, b: seed_forms.opt(algebra, a, b))
            if form == "opt"
            else (lambda a, b: getattr(seed_forms, form)(table, a, b))
        )
    if function is None:
        return []
    a, b, grad = (torch.randn(algebra.dim, batch, device=device) for _ in range(3))
    out = torch.empty_like(a)
    # the same 3 L numbers moved by the plainest kernel; forward + backward moves 8 L (read a, b, g; write out, da, db; read a, b)
    forward_floor = measure(lambda: torch.add(a, b, out=out))
    truth = naive.bilinear(table, a.double(), b.double())
    if not component_major:
        a, b, grad, truth = (x.t().contiguous() for x in (a, b, grad, truth))
    if form == "clifra":
        a, b, grad, truth = (x[:, order].contiguous() for x in (a, b, grad, truth))
    error = (function(a, b).double() - truth).abs().max().item()
    bytes_moved = 3 * algebra.dim * batch * 4
    median = measure(lambda: function(a, b))
    rows = [_row(case, form, batch, "forward", median, forward_floor, error, bytes_moved)]
    if form in ("atomic", "opt", "clifra"):
        return rows
    a.requires_grad_()
    b.requires_grad_()

    def both():
        return torch.autograd.grad(function(a, b), (a, b), grad)

    wide = [x.detach().double() if component_major else x.detach().double().t() for x in (a, b, grad)]
    gradients = naive.bilinear_backward(table, *wide)
    ours = both() if component_major else [x.t() for x in both()]
    error = max((x.double() - y).abs().max().item() for x, y in zip(ours, gradients, strict=True))
    bytes_moved = 8 * algebra.dim * batch * 4
    rows.append(_row(case, form, batch, "forward+backward", measure(both), forward_floor * 8 / 3, error, bytes_moved))
    return rows


def _compiled(table):
    """torch.compile of the unrolled form as straight-line code (no table to guard on), one static compilation per batch size."""
    import torch

    from geomix.kernels.product.program import forward_program

    rows = []
    for terms in forward_program(table).outputs["out"]:
        rows.append(" ".join(f"{'+' if s > 0 else '-'} {u}[{i}] * {v}[{j}]" for s, (u, i), (v, j) in terms))
    names: dict = {"torch": torch}
    exec(f"def unrolled(a, b):\n    return torch.stack([{', '.join(rows)}])", names)
    torch._dynamo.reset()
    return torch.compile(names["unrolled"], dynamic=False)


def _clifra(algebra, device):
    """(product of the clifra package, place of each of its blades here), an optional peer, full algebras only; else Nones."""
    if find_spec("clifra") is None or len(algebra.grades) <= algebra.n:
        return None, None
    import clifra
    import torch

    order = torch.as_tensor(algebra.blades.argsort(), device=device)  # clifra orders blades by bit mask
    return clifra.make_algebra(algebra.p, algebra.q, algebra.r, device=str(device)).geometric_product, order


def _linear_rows(device, measure):
    """A multivector linear map beside F.linear at equal parameters and at equal FLOPs, 4,096 tokens."""
    import torch
    from torch.nn import functional as F

    from geomix.algebra import Algebra
    from geomix.models.multivector import MultivectorLinear

    rows, tokens = [], 4096
    for channels in (16, 64):
        algebra = Algebra(3)
        layer = MultivectorLinear(algebra, channels, channels, terms=1).to(device)
        parameters = sum(p.numel() for p in layer.parameters())
        width = channels * algebra.dim
        x = torch.randn(tokens, channels, algebra.dim, device=device, requires_grad=True)
        narrow = max(1, round(parameters**0.5))
        peer = _cliffordlayers(channels, device)
        case = f"linear Cl(3), {channels} channels ({parameters} parameters)"
        for form, inputs, function, weights in (
            ("multivector_linear", x, layer, list(layer.parameters())),
            ("multivector_products", x, layer.products, list(layer.parameters())),
            *([("cliffordlayers CliffordLinear", x, peer, list(peer.parameters()))] if peer else []),
            (f"F.linear {narrow}x{narrow} (equal parameters)", *_dense(tokens, narrow, device)),
            (f"F.linear {width}x{width} (equal FLOPs)", *_dense(tokens, width, device)),
        ):
            size = inputs[0].numel() * 2 * 4 * tokens + sum(w.numel() for w in weights) * 4
            copy = torch.empty(size // 12, device=device)
            floor = measure(lambda copy=copy: torch.add(copy, copy, out=copy))
            truth = function(inputs).double()
            if form.startswith("cliffordlayers"):  # its table is its own: compared with itself in float64
                wide = truth
            elif not form.startswith("F.linear"):
                wide = F.linear(x.detach().double().flatten(1), layer.weight_matrix().double())
                wide = wide.view_as(x) + F.pad(layer.bias.double(), (0, algebra.dim - 1))
            else:
                wide = F.linear(inputs.detach().double(), weights[0].double())
            error = (truth - wide).abs().max().item()
            rows.append(
                _row(case, form, tokens, "forward", measure(lambda f=function, i=inputs: f(i)), floor, error, size)
            )
            grad = torch.randn_like(function(inputs))
            both = lambda f=function, i=inputs, w=weights, g=grad: torch.autograd.grad(f(i), [i, *w], g)
            rows.append(
                _row(case, form, tokens, "forward+backward", measure(both), floor * 2.5, error, int(size * 2.5))
            )
    for row in rows:
        print(f"{row['case']}: {row['form']:<42} {row['direction']:<17} {row['median_us']:>10.1f} us")
    return rows


def _cliffordlayers(channels, device):
    """CliffordLinear of the cliffordlayers package (MIT) in Cl(3), an optional peer; None without it."""
    if find_spec("cliffordlayers") is None:
        return None
    from cliffordlayers.nn.modules.cliffordlinear import CliffordLinear

    return CliffordLinear([1, 1, 1], channels, channels).to(device)


def _dense(tokens, width, device):
    import torch
    from torch.nn import functional as F

    x = torch.randn(tokens, width, device=device, requires_grad=True)
    weight = torch.randn(width, width, device=device, requires_grad=True)
    return x, lambda y: F.linear(y, weight), [weight]


def _row(case, form, batch, direction, median, floor, error, bytes_moved):
    return {
        "case": case, "form": form, "B": batch, "direction": direction, "median_us": median, "floor_us": floor, "error": error,
        "bytes": bytes_moved, "gb_per_s": bytes_moved / median / 1e3, "copy_fraction": floor / median,
    }  # fmt: skip


def _show(rows, case, batch):
    print(f"-- {case}, B = {batch}")
    for row in rows:
        if row["case"] == case and row["B"] == batch:
            print(
                f"   {row['form']:<22} {row['direction']:<17} {row['median_us']:>12.1f} us  "
                f"{row['median_us'] / row['floor_us']:>8.1f} x floor   error {row['error']:.1e}"
            )


def _write(rows, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        digits = {k: f"{v:.4g}" for k, v in row.items() if isinstance(v, float)}
        writer.writerow({**row, **digits})
    write_text(folder / "product.csv", text.getvalue())
    write_text(folder / "product.json", json.dumps(_summary(rows), indent=1) + "\n")
    plot(rows, folder)


def _summary(rows) -> dict:
    """The ratios that the project promises, from the largest batch of 65,536 or less."""
    ratios = {}
    at = {(r["case"], r["form"], r["B"], r["direction"]): r["median_us"] for r in rows}
    floors = {(r["case"], r["B"], r["direction"]): r["floor_us"] for r in rows if r["form"] == "geomix"}
    for (case, batch, direction), floor in floors.items():
        ours = at[case, "geomix", batch, direction]
        ratios[f"{case} B={batch} {direction}"] = {
            "times_floor": round(ours / floor, 3),
            **{
                f"speedup_over_{form}": round(at[case, form, batch, direction] / ours, 2)
                for form in FORMS
                if form != "geomix" and (case, form, batch, direction) in at
            },
        }
    return ratios


def plot(rows, folder: Path) -> None:
    """Median time against batch size, one panel a case and direction, with the floor: product.png and product.svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases = list(dict.fromkeys(r["case"] for r in rows if not r["case"].startswith("linear")))
    if not cases:
        return
    directions = ("forward", "forward+backward")
    figure, axes = plt.subplots(
        2, len(cases), figsize=(3.6 * len(cases) + 1.2, 7), sharex=True, sharey="row", squeeze=False
    )
    colours = dict(zip(FORMS, plt.get_cmap("tab20").colors[1::2] + plt.get_cmap("tab20").colors[::2], strict=False))
    colours.update(geomix="black", geomix_component_last="dimgray")
    for row, direction in enumerate(directions):
        for column, case in enumerate(cases):
            axis = axes[row, column]
            for form in FORMS:
                points = [r for r in rows if (r["case"], r["form"], r["direction"]) == (case, form, direction)]
                if points:
                    axis.loglog(
                        [p["B"] for p in points], [p["median_us"] for p in points], "o-", ms=3, color=colours[form],
                        lw=2.2 if form == "geomix" else 1.1, label=LABELS[form],
                    )  # fmt: skip
            floor = [r for r in rows if (r["case"], r["form"], r["direction"]) == (case, "geomix", direction)]
            axis.fill_between(
                [p["B"] for p in floor], [p["floor_us"] for p in floor], 0.3, color="0.9", label="below the copy floor"
            )
            axis.set_title(f"{case}, {direction}", fontsize=9)
            axis.grid(alpha=0.3)
            if row:
                axis.set_xlabel("batch B")
            if not column:
                axis.set_ylabel("median time, µs")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1 - 2.6 / figure.get_figwidth(), 1))
    for suffix in ("png", "svg"):
        with atomic_path(folder / f"product.{suffix}") as path:
            figure.savefig(path, dpi=110, format=suffix)
    plt.close(figure)
