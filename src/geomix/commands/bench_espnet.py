"""`geomix bench espnet`: one training step of the attention arm in both tracks, same batch, same process, by turns."""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

from geomix.commands.arguments import positive, whole
from geomix.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `geomix bench espnet`."""
    parser.add_argument("--configfile", nargs="+", default=[], metavar="F", help="overlays on config.yaml")
    parser.add_argument("--arm", default="attention", help="default: %(default)s")
    parser.add_argument(
        "--utterances", type=whole(), default=4, metavar="N", help="in the batch (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=positive, default=12.0, metavar="S", help="of each (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=whole(), default=7, metavar="N", help="steps of each track (default: %(default)s)"
    )
    parser.add_argument("--threads", type=whole(), default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument(
        "--operations", type=whole(), default=10, metavar="N", help="in the profile (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("results/bench"), metavar="DIR", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the tables, and write DIR/espnet.csv and DIR/espnet.md."""
    from geomix.espnet_track.environment import run_step
    from geomix.files import write_text
    from geomix.settings import load, training_settings

    config = load(*arguments.configfile)
    if arguments.arm not in config["arms"]:
        raise UserError(f"--arm {arguments.arm}: no such arm; the config has {', '.join(config['arms'])}")
    request = {
        "settings": training_settings(config, arguments.arm, 0, "espnet"),
        "vocab": config["tokenizer"]["size"] or 100,
        "utterances": arguments.utterances,
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        "profile": arguments.operations,
    }
    load = os.getloadavg()[0]
    found = run_step("speed", request, threads=arguments.threads) | {"load": load}
    text = describe(found, arguments.arm, arguments.utterances, arguments.seconds)
    print(text)
    write_text(arguments.out / "espnet.md", text)
    rows = [
        f"{track},{number},{seconds:.4f},{cpu:.4f},{arguments.utterances * arguments.seconds / seconds:.2f}"
        for track, values in found["tracks"].items()
        for number, (seconds, cpu) in enumerate(zip(values["seconds"], values["cpu_seconds"], strict=True))
    ]
    write_text(arguments.out / "espnet.csv", "\n".join(["track,round,seconds,cpu_seconds,audio_s_per_s", *rows]) + "\n")


def describe(found: dict[str, Any], arm: str, utterances: int, seconds: float) -> str:
    """The measurement as a page of Markdown."""
    from geomix.report.text import markdown_table

    rate = found["device_flops"]
    lines = [
        f"# A training step of {arm} in both tracks",
        "",
        f"{found['parameters']:,} parameters, fp32, {utterances} utterances of {seconds:g} s, {found['threads']} thread(s), one process, by turns, "
        f"on {found['device']}; torch {found['packages']['torch']}, ESPnet {found['espnet']}. The machine multiplies matrices at "
        f"{rate['value'] / 1e9:.0f} GFLOP/s ({rate['source']}, 1,024 squared). The machine's load was {found['load']:.1f} when this began. Made by `geomix bench espnet`.",
        "",
        *markdown_table(
            [
                "track",
                "step, s (median, least to most)",
                "audio-s/s",
                "processor time, s",
                "share of the matrix-product rate",
            ],
            [_row(track, values) for track, values in found["tracks"].items()],
        ),
    ]
    lines += [
        "",
        f"The own track is {found['ratio']:.2f} times as fast, {found['cpu_ratio']:.2f} times by processor time (medians over rounds of ESPnet's time over ours).",
        "",
    ]
    for track, values in found["tracks"].items():
        profile = [[f"`{name}`", f"{share:.1f}", f"{calls:,}"] for name, share, calls in values["profile"]]
        lines += [
            f"## Where the time goes: {track}",
            "",
            *markdown_table(["operation", "% of the step", "calls"], profile),
        ]
        lines.append("")
    return "\n".join(lines)


def _row(track: str, values: dict[str, Any]) -> list[str]:
    times, cpu = values["seconds"], statistics.median(values["cpu_seconds"])
    return [
        track,
        f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})",
        f"{values['audio_s_per_s']:.1f}",
        f"{cpu:.2f}",
        f"{100 * values['share_of_rate']:.0f} %",
    ]
