"""`geomix bench espnet`: one training step of the attention arm in both tracks, same batch, same process, by turns."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from typing import Any

from geomix.benchmarks.options import Common, option
from geomix.errors import UserError
from geomix.files import write_text
from geomix.report.text import markdown_table


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench espnet`; it writes espnet.csv and espnet.md."""

    configfile: tuple[str, ...] = option((), "overlays on config.yaml")
    arm: str = option("attention", "arm of the config")
    utterances: int = option(4, "utterances of the batch")
    seconds: float = option(12.0, "length of each")
    rounds: int = option(7, "steps of each track")
    operations: int = option(10, "operations in the profile")


def run(options: Options) -> None:
    """Measure in ESPnet's environment, print the tables, and write them."""
    from geomix.espnet_track.environment import run_step
    from geomix.settings import load, training_settings

    config = load(*options.configfile)
    if options.arm not in config["arms"]:
        raise UserError(f"--arm {options.arm}: no such arm; the config has {', '.join(config['arms'])}")
    request = {
        "settings": training_settings(config, options.arm, 0, "espnet"),
        "vocab": config["tokenizer"]["size"] or 100,
        "utterances": options.utterances,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "profile": options.operations,
    }
    load_before = os.getloadavg()[0]
    found = run_step("geomix.benchmarks.espnet_step:measure_tracks", request, threads=options.threads)
    text = describe(found | {"load": load_before}, options.arm, options.utterances, options.seconds)
    print(text)
    write_text(options.out / "espnet.md", text)
    rows = [
        f"{track},{number},{seconds:.4f},{cpu:.4f},{options.utterances * options.seconds / seconds:.2f}"
        for track, values in found["tracks"].items()
        for number, (seconds, cpu) in enumerate(zip(values["seconds"], values["cpu_seconds"], strict=True))
    ]
    write_text(options.out / "espnet.csv", "\n".join(["track,round,seconds,cpu_seconds,audio_s_per_s", *rows]) + "\n")


def describe(found: dict[str, Any], arm: str, utterances: int, seconds: float) -> str:
    """The measurement as a page of Markdown."""
    rate, differ = found["device_flops"], f"by {found['difference']:.0e} of a tensor's largest number"
    verdict = f"Loss and gradients of the tracks differ {differ}: no speed is compared."
    if found["ratio"]:
        verdict = (
            f"The own track is {found['ratio']:.2f} times as fast, {found['cpu_ratio']:.2f} times by processor time (medians over rounds of "
            f"ESPnet's time over ours). Before that, without dropout and SpecAugment, loss and every gradient differed {differ} at most."
        )
    head = [
        "track",
        "step, s (median, least to most)",
        "audio-s/s",
        "processor time, s",
        "share of the matrix-product rate",
    ]
    lines = [
        f"# A training step of {arm} in both tracks",
        "",
        f"{found['parameters']:,} parameters, fp32, {utterances} utterances of {seconds:g} s, {found['threads']} thread(s), one process, by turns, "
        f"on {found['device']}; torch {found['packages']['torch']}, ESPnet {found['espnet']}. The machine multiplies matrices at "
        f"{rate['value'] / 1e9:.0f} GFLOP/s ({rate['source']}, 1,024 squared). The machine's load was {found['load']:.1f} when this began. "
        "Made by `geomix bench espnet`.",
        "",
        *markdown_table(head, [_row(track, values) for track, values in sorted(found["tracks"].items())]),
        "",
        verdict,
        "",
    ]
    for track, values in sorted(found["tracks"].items()):
        profile = [[f"`{name}`", f"{share:.1f}", f"{calls:,}"] for name, share, calls in values["profile"]]
        table = markdown_table(["operation", "% of the step", "calls"], profile)
        lines += [f"## Where the time goes: {track}", "", *table, ""]
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
