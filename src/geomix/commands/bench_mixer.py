"""`geomix bench mixer`: the pair mixer's forms, paper, anchored and fused, at equal frames and growing length."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from geomix.commands.arguments import positive, whole, wholes
from geomix.errors import UserError
from geomix.files import write_text
from geomix.report.figures import COLOURS, MARKERS, draw

COLUMNS = (
    "kind", "form", "length", "frames", "direction", "median_us", "floor_us", "gflop_per_s", "error", "peak_bytes", "device",
    "threads", "dtype",
)  # fmt: skip
FORMS = ("paper", "anchored", "fused")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `geomix bench mixer`."""
    parser.add_argument("--out", type=Path, default=Path("results/bench"), help="folder of mixer.csv and its figure")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--threads", type=whole(), default=1, help="CPU threads (default 1)")
    parser.add_argument("--kinds", default="wedge symmetric", help="pair products, separated by blanks")
    parser.add_argument(
        "--lengths", type=wholes, default="128 512 4096", help="sequence lengths; each fills --frames frames"
    )
    parser.add_argument("--frames", type=whole(), default=16384, help="frames of a step (default 16384)")
    parser.add_argument("--width", type=whole(), default=256)
    parser.add_argument("--rank", type=whole(2), default=32)
    parser.add_argument(
        "--dtype", default=None, choices=("fp32", "bf16"), help="autocast type (default: bf16 on CUDA, else fp32)"
    )
    parser.add_argument("--seconds", type=positive, default=1.0, help="measuring time a row")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print and write mixer.csv."""
    import torch

    from geomix.commands.bench_product import Timer
    from geomix.training.devices import device_name

    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: this machine shows no CUDA device; use --device cpu")
    torch.set_num_threads(arguments.threads)
    low = (arguments.dtype or ("bf16" if device.type == "cuda" else "fp32")) == "bf16"
    measure = Timer(device, arguments.seconds)
    name = device_name(device)
    rows = []
    for kind in arguments.kinds.split():
        for length in arguments.lengths:
            if arguments.frames % length:
                raise UserError(f"--lengths {length}: it must divide the {arguments.frames} frames of a step")
            for row in _measure(arguments, kind, length, device, low, measure):
                row.update(device=name, threads=arguments.threads, dtype="bf16" if low else "fp32")
                rows.append(row)
                print(
                    f"{kind:<10} {row['form']:<9} L={length:<5} {row['direction']:<17} {row['median_us'] / 1e3:>10.2f} ms  "
                    f"{row['median_us'] / row['floor_us']:>7.1f} x copy floor   error {row['error']:.1e}"
                )
            _write(rows, arguments.out)  # after each length: the paper form takes seconds a call
    print(f"wrote {arguments.out}/mixer.csv, mixer.png and mixer.svg")


def _write(rows, folder: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
    write_text(folder / "mixer.csv", text.getvalue())
    draw("mixer", folder, lambda: plot(rows))


def plot(rows):
    """Time of forward and backward against length at equal frames: a panel a kind, a line a form, and the copy floor."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure = Figure(figsize=(1.4 + 3.4 * len(kinds), 3.6), layout="constrained")
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        both = [row for row in rows if row["kind"] == kind and row["direction"] == "forward+backward"]
        for form, colour, marker in zip(FORMS, COLOURS, MARKERS, strict=False):
            points = [(row["length"], row["median_us"] / 1e3) for row in both if row["form"] == form]
            if points:
                ax.plot(*zip(*points, strict=True), color=colour, marker=marker, label=form)
        floor = {row["length"]: row["floor_us"] / 1e3 for row in both}
        ax.plot(list(floor), list(floor.values()), color="#808080", ls=":", label="copy floor")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel(f"length, {both[0]['frames']:,} frames in all")
        ax.set_title(f"{kind}, forward and backward")
    axes[0].set_ylabel("median time, ms")
    axes[-1].legend(frameon=False)
    return figure


def _measure(arguments, kind, length, device, low, measure):
    import torch

    from geomix.kernels.pair_mixer import pair_mixer
    from geomix.mixers.pair import PairMixer

    torch.manual_seed(0)
    width, batch = arguments.width, arguments.frames // length
    mixer = PairMixer(width, kind=kind, rank=arguments.rank).to(device)
    x = torch.randn(batch, length, width, device=device, requires_grad=True)
    grad = torch.randn_like(x)
    mask = torch.ones(batch, length, dtype=torch.bool, device=device)
    weights = (mixer.project.weight, mixer.project.bias, mixer.gate.weight, mixer.gate.bias)
    leaves = [x, *mixer.parameters()]

    def step(form):
        backend, form = ("fused", "anchored") if form == "fused" else ("naive", form)
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            return pair_mixer(
                mixer.product, x, mixer.reduce(x), *weights, mask, mixer.offsets, form=form, backend=backend
            )

    def backward(form):
        y = step(form)
        return torch.autograd.grad(y, leaves, grad.to(y.dtype))

    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        few = slice(0, 1)
        double = PairMixer(width, kind=kind, rank=arguments.rank, form="paper").to(device, torch.float64)
        double.load_state_dict(mixer.state_dict())
        wide = [w.double() for w in weights]
        truth = pair_mixer(
            double.product, x[few].double(), double.reduce(x[few].double()), *wide, mask[few], double.offsets, form="paper",
            backend="naive",
        )  # fmt: skip
    # one read of x, one write of y; forward + backward: x, y, dy, dx and x again
    copy = torch.empty_like(x.detach())
    floor = measure(lambda: copy.copy_(x.detach()))
    pairs = mixer.product.out_dim
    multiply = arguments.frames * 2 * (width * arguments.rank + pairs * width + 2 * width * width)
    for form in FORMS:
        if form == "fused" and device.type != "cuda":
            continue  # Triton needs a GPU; its interpreter is for tests
        work = (
            multiply
            if form != "paper"
            else multiply + arguments.frames * 2 * pairs * width * (2 * len(mixer.offsets) - 1)
        )
        error = (step(form)[few].double() - truth).abs().max().item()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        for direction, function, factor in (
            ("forward", lambda form=form: step(form), 1.0),
            ("forward+backward", lambda form=form: backward(form), 3.0),
        ):
            median = measure(function)
            yield {
                "kind": kind, "form": form, "length": length, "frames": arguments.frames, "direction": direction,
                "median_us": median, "floor_us": floor * (1 if factor == 1 else 2.5), "gflop_per_s": factor * work / median / 1e3,
                "error": error, "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
            }  # fmt: skip
