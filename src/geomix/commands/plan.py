"""`geomix plan`: what a study will cost, before it starts."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

from geomix.studies.plan import A100_FLOPS, Plan, hours_of, make_plan
from geomix.studies.precision import Precision, expected_precision
from geomix.training.pace import GPU_UTILISATION, this_machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--configfile", nargs="+", default=[], metavar="F", help="overlays on config.yaml, as Snakemake takes them"
    )
    parser.add_argument(
        "--tflops",
        type=float,
        metavar="T",
        help="the GPU's dense bf16 rate in TFLOP/s (default: that of the GPU here; without one, an A100's, and the CPU's time beside it)",
    )
    parser.add_argument(
        "--utilisation",
        type=float,
        nargs=2,
        default=[100 * share for share in GPU_UTILISATION],
        metavar=("LOW", "HIGH"),
        help="per cent of it that a training reaches (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the plan of the study in config.yaml and the given overlays."""
    from geomix.errors import UserError
    from geomix.settings import load

    low, high = arguments.utilisation
    if not 0 < low <= high <= 100 or (arguments.tflops is not None and arguments.tflops <= 0):
        raise UserError(
            f"--tflops {arguments.tflops} --utilisation {low} {high}: a positive rate and 0 < LOW <= HIGH <= 100 are needed"
        )
    config = load(*arguments.configfile)
    machine = None if arguments.tflops else this_machine(config["training"]["threads"])
    flops = 1e12 * arguments.tflops if arguments.tflops else machine.flops if machine.gpu else A100_FLOPS
    plan = make_plan(config, device_flops=flops, utilisation=(low / 100, high / 100))
    print(describe(plan, flops / 1e12, low, high))
    print("\n".join(["", *describe_precision(expected_precision(config))]))
    if machine and not machine.gpu and any(t.basis == "formula" for t in plan.trainings):
        here = make_plan(config, device_flops=machine.flops, utilisation=machine.utilisation)
        print(
            f"\nwithout a GPU, as here ({machine.name}, {config['training']['threads']} threads a training): "
            f"{_range(*hours_of([t for t in here.trainings if not t.done]))} of trainings that are not done"
        )


def describe(plan: Plan, tflops: float, low: float, high: float) -> str:
    """A plan as text."""
    lines = [f"{plan.run}: {len(plan.trainings)} trainings, {_range(*hours_of(plan.trainings))}", ""]
    if any(t.basis == "formula" for t in plan.trainings):
        lines[:1] += [f"  by formula where nothing is measured yet, at {low:g} to {high:g} % of {tflops:g} TFLOP/s"]
    done = [t for t in plan.trainings if t.done]
    if done:
        left = [t for t in plan.trainings if not t.done]
        lines[:1] += [f"  {len(done)} done; {len(left)} left, {_range(*hours_of(left))}"]

    lines.append("order")
    waves = [list(wave) for _, wave in itertools.groupby(plan.trainings, key=lambda t: t.seed)]
    for number, wave in enumerate(waves, 1):
        who = "all arms and tracks" if number == 1 else "the same"
        lines.append(f"  {number}. seed {wave[0].seed} of {who}: {len(wave)} trainings, {_range(*hours_of(wave))}")
    if plan.anchors:
        who = ", ".join(f"{t.track}/{t.arm}/seed{t.seed}" for t in plan.anchors)
        lines.append(f"  beside them the gate's {who}: {_range(*hours_of(plan.anchors))}")
    if plan.fallback:
        who = ", ".join(f"{t.track}/{t.arm}/seed{t.seed}" for t in plan.fallback)
        lines.append(f"  only if the gate's arm misses its target: {who}: {_range(*hours_of(plan.fallback))}")
    lines += ["", f"  {'track':<8} {'arm':<22} {'parameters':>11} {'time a run':>12}  basis"]
    for t in waves[0]:
        gated = ", waits for the gate" if t.gated else ""
        lines.append(f"  {t.track:<8} {t.arm:<22} {t.parameters:>11,} {_range(*t.hours):>12}  {t.basis}{gated}")

    lines += [
        "",
        f"longest chain: {_range(*plan.chain_hours)} of a device, however many devices there are",
        *_wrapped(" > ".join(plan.chain)),
    ]
    lines += [
        "",
        f"jobs from nothing: {sum(plan.jobs.values())}",
        *_wrapped(", ".join(f"{count} {rule}" for rule, count in plan.jobs.items())),
    ]

    lines += ["", f"disk: {_gb(plan.bytes)} at most, {_gb(plan.there)} of it there; the disk has {_gb(plan.free)} free"]
    for stored in plan.storage:
        lines.append(f"  {_gb(stored.bytes):>10}  {stored.kind:<60} {stored.bound}")
    if plan.missing:
        lines.append(f"  {_gb(plan.missing)} are missing: free them, or change a key on the right")
    return "\n".join(lines)


def describe_precision(found: Sequence[Precision]) -> list[str]:
    """What the contrasts of arms will be able to show, as text."""
    lines = [
        "what a contrast of two arms will show with 80 % power, in points of WER: smallest difference / smallest margin"
    ]
    if not found:
        return [*lines, "  not known before the test sets are prepared (their speakers are counted then)"]
    shown = lambda pair: "nothing" if pair[0] != pair[0] else f"{pair[0]:.1f} / {pair[1]:.1f}"
    for p in found:
        seeds = f"{p.seeds} seed{'s' * (p.seeds > 1)}"
        lines.append(
            f"  {p.set}: {p.speakers} speakers, {seeds}: {shown(p.now)}; with {p.seeds + 2} seeds {shown(p.more_seeds)}; "
            f"with {2 * p.speakers} speakers {shown(p.more_speakers)}"
        )
        lines.append(f"    variance components from {p.basis}")
    return lines


def _range(low: float, high: float) -> str:
    """Hours of a device as 4.0-8.0 h, to two digits; less than an hour and a half in minutes or seconds."""
    unit, factor = next(
        (unit, factor)
        for unit, factor, most in (("s", 3600, 90), ("min", 60, 90), ("h", 1, float("inf")))
        if high * factor < most
    )
    short, long = (f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in (low * factor, high * factor))
    return f"{short} {unit}" if short == long else f"{short}-{long} {unit}"


def _gb(value: float) -> str:
    return f"{value / 1e9:.1f} GB" if value >= 5e7 else f"{value / 1e6:.1f} MB"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text, 118, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
