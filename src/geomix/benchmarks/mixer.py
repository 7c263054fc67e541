"""`geomix bench mixer`: the pair mixer's forms, paper, averaged, anchored and fused, at equal frames and growing length.

Averaged is the paper's form with its one linear map taken last: the pairs' vectors are averaged, then projected.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geomix.benchmarks.clock import measure, prepared
from geomix.benchmarks.forms import BACKWARD, FORWARD, TOLERANCES, Agreement, Form, compare, require, speed_up
from geomix.benchmarks.options import Common, option
from geomix.benchmarks.output import Panel, draw_curves, write_csv
from geomix.errors import UserError
from geomix.mixers import Frames, PairMixer
from geomix.training.devices import device_name

COLUMNS = (
    "kind", "form", "length", "frames", "direction", "median_us", "floor_us", "gflop_per_s", "error", "peak_bytes", "device",
    "threads", "dtype",
)  # fmt: skip
# form -> the form of PairMixer, the backend of its kernels
FORMS = {
    "paper": ("paper", "naive"),
    "averaged": ("averaged", "naive"),
    "anchored": ("anchored", "naive"),
    "fused": ("anchored", "fused"),
}
TRAINED = ("paper", "anchored", "fused")
"""The forms that a training may choose."""


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench mixer`; it writes mixer.csv, mixer.png and mixer.svg."""

    device: str = option("auto", "auto, cpu, cuda or mps")
    kinds: tuple[str, ...] = option(("wedge", "symmetric"), "pair products")
    lengths: tuple[int, ...] = option((128, 512, 4096), "sequence lengths; each fills --frames frames")
    frames: int = option(16384, "frames of a step")
    width: int = option(256, "model width")
    rank: int = option(32, "numbers to which a frame is reduced")
    dtype: str | None = option(None, "autocast type (default: bf16 on CUDA, else fp32)", choices=("fp32", "bf16"))
    seconds: float = option(1.0, "measuring time of a row")


def run(options: Options) -> None:
    """Measure, print and write mixer.csv and its figure."""
    if wrong := [length for length in options.lengths if options.frames % length]:
        raise UserError(f"--lengths {wrong[0]}: it must divide the {options.frames} frames of a step")
    device = prepared(options.device, options.threads)
    rows: list[dict[str, Any]] = []
    for kind in options.kinds:
        for length in options.lengths:
            rows += _measure(options, kind, length, device)
            write_csv(
                options.out / "mixer.csv", COLUMNS, rows
            )  # after each length: the form `paper` takes seconds a call
    panels = []
    for kind in options.kinds:
        both = [row for row in rows if row["kind"] == kind and row["direction"] == BACKWARD]
        curves = {form: [(r["length"], r["median_us"] / 1e3) for r in both if r["form"] == form] for form in FORMS}
        floor = {row["length"]: row["floor_us"] / 1e3 for row in both}
        title, xlabel = f"{kind}, forward and backward", f"length, {options.frames:,} frames in all"
        shown = {form: points for form, points in curves.items() if points}
        panels.append(Panel(title, xlabel, "median time, ms", shown, list(floor.items())))
    draw_curves("mixer", options.out, [panels])
    print(f"wrote {options.out}/mixer.csv, mixer.png and mixer.svg")


def pair_forms(
    module: nn.Module, x: Tensor, upstream: Tensor, low: bool, forms: Iterable[str] = TRAINED
) -> dict[str, Form]:
    """The forms that run on x's device, of the PairMixer that `module` is, or holds; under bf16 autocast if `low`.

    x, upstream : (batch, length, width); gradients are those of x and of all weights.
    """
    mixer = next(m for m in module.modules() if isinstance(m, PairMixer))
    frames = Frames.of(torch.full((len(x),), x.shape[1]), x.shape[1], device=x.device)

    def forward(form: str) -> Tensor:
        mixer.form, mixer.backend = FORMS[form]
        # a cache of casts must not be held on to by a graph
        with torch.autocast(x.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
            return module(x, frames)

    names = [form for form in forms if form != "fused" or x.device.type == "cuda"]  # Triton's interpreter is for tests
    return {form: Form(lambda form=form: forward(form), [x, *module.parameters()], upstream) for form in names}


def check_forms(
    module: nn.Module, x: Tensor, upstream: Tensor, low: bool, forms: Iterable[str] = TRAINED
) -> dict[str, Agreement]:
    """How far each form is from the definition (`paper`) in float64 on the first sequence of x; without dropout."""
    still = copy.deepcopy(module).eval()
    leaf = lambda dtype: x[:1].detach().to(dtype).requires_grad_()
    truth = pair_forms(copy.deepcopy(still).double(), leaf(torch.float64), upstream[:1], False)["paper"].outcome()
    tolerance = TOLERANCES[torch.bfloat16 if low else x.dtype]
    found = pair_forms(still, leaf(x.dtype), upstream[:1], low, forms)
    return {name: compare(form.outcome(), truth, tolerance) for name, form in found.items()}


def _measure(options: Options, kind: str, length: int, device: torch.device) -> list[dict[str, Any]]:
    """The rows of one kind and length, once all forms have agreed with the definition."""
    torch.manual_seed(0)
    low = (options.dtype or ("bf16" if device.type == "cuda" else "fp32")) == "bf16"
    mixer = PairMixer(options.width, kind=kind, rank=options.rank).to(device)
    x = torch.randn(options.frames // length, length, options.width, device=device, requires_grad=True)
    upstream, copied = torch.randn_like(x), torch.empty_like(x.detach())
    agrees = check_forms(mixer, x, upstream, low, FORMS)
    require(agrees, f"{kind} mixer, length {length}")
    calls: dict[Any, Any] = {"floor": lambda: copied.copy_(x.detach())}
    for name, form in pair_forms(mixer, x, upstream, low, FORMS).items():
        calls |= {(name, FORWARD): form.forward, (name, BACKWARD): form.backward}
    peaks = {name: _peak(call, device) for name, call in calls.items()}
    times = measure(calls, seconds=options.seconds, device=device)
    floor, rows = times.pop("floor").seconds, []
    for (form, way), timing in times.items():
        # forward reads x and writes y; with backward x, y, dy, dx and x again move
        share, factor = (1.0, 1) if way == FORWARD else (2.5, 3)
        vectors = 2 * len(mixer.offsets) if form == "paper" else 1
        weights = mixer.reduce.weight.numel() + vectors * mixer.project.weight.numel() + mixer.gate.weight.numel()
        row = {
            "kind": kind, "form": form, "length": length, "frames": options.frames, "direction": way,
            "median_us": 1e6 * timing.seconds, "floor_us": 1e6 * share * floor,
            "gflop_per_s": 2e-9 * factor * weights * options.frames / timing.seconds, "error": agrees[form].value,
            "peak_bytes": peaks[form, way], "device": device_name(device), "threads": options.threads,
            "dtype": "bf16" if low else "fp32",
        }  # fmt: skip
        rows.append(row)
        faster = speed_up(timing, times["paper", way], agrees[form], agrees["paper"])
        print(
            f"{kind:<10} {form:<9} L={length:<5} {way:<17} {1e3 * timing.seconds:>10.2f} ms {timing.seconds / share / floor:>7.1f} x "
            f"copy floor {faster:>6.2f} x as fast as paper   error {agrees[form].value:.1e}",
            flush=True,
        )
    return rows


def _peak(call: Any, device: torch.device) -> int:
    """Bytes that a call holds at most, on CUDA; else 0."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    call()
    return torch.cuda.max_memory_allocated(device)
