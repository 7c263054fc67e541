"""Pages of phases 2 and 3: language models with one component changed, and with other feed-forward layers; phase 3 on speech."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remarks_section, seed_marks
from geomix.report.figures import draw
from geomix.report.text import markdown_table

# an arm of the algebra and the same under random signs
CONTROLS = (("clifford", "shuffled"), ("clifford_two_sided", "shuffled_two_sided"))


def _language_table(jobs: dict[str, dict[str, Any]], baseline: str) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Rows of a table of language-model arms, and each arm's comparison with the baseline."""
    from geomix.statistics import t_interval_log_perplexity

    base = jobs[baseline]
    rows, comparisons = [], []
    for arm, job in jobs.items():
        values = _perplexities(job)
        entry: dict[str, Any] = {"arm": arm, "baseline": baseline, "seeds": len(values)}
        if arm == baseline:
            ratio, verdict = "1", "baseline"
        elif len(values) < 2:
            ratio, verdict = f"{np.mean(values) / np.mean(_perplexities(base)):.3f}", "one seed: no interval"
        elif values == _perplexities(base):
            entry |= {"ratio": 1.0, "low": 1.0, "high": 1.0, "verdict": "identical"}
            ratio, verdict = "1 exactly", "identical, seed by seed"
        else:
            t = t_interval_log_perplexity(values, _perplexities(base))
            kind = "tie" if t.low <= 1 <= t.high else f"{arm if t.ratio < 1 else baseline} better"
            entry |= {"ratio": t.ratio, "low": t.low, "high": t.high, "p": t.log.p, "verdict": kind}
            ratio, verdict = f"{t.ratio:.3f} [{t.low:.3f}, {t.high:.3f}]", kind
        comparisons.append(entry)
        rows.append(
            [
                arm,
                f"{job['parameters']:,} ({job['parameters'] / base['parameters']:.3f})",
                f"{job['flops_per_token'] / 1e6:.2f} ({job['flops_per_token'] / base['flops_per_token']:.2f})",
                f"{1e3 * job['step_seconds']:.1f}",
                f"{job['activation_bytes'] / 1e6:.1f}",
                f"{job['record']['peak_memory_bytes'] / 1e6:.0f}",
                f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else f"{values[0]:.2f}",
                ratio,
                verdict,
            ]
        )
    return rows, comparisons


LANGUAGE_HEAD = [
    "arm", "parameters (× baseline)", "MFLOP a token (×)", "step, CPU-ms", "kept, MB", "peak, MB", "test perplexity", "ratio [95 %]", "verdict",
]  # fmt: skip
LANGUAGE_NOTE = (
    "Perplexity on the test split at the epoch with the best validation perplexity, mean ± standard deviation over seeds; ratio: "
    "difference of mean ln(perplexity) with its 95 % t-interval, degrees of freedom min(n) - 1, as the language study has it; a tie where the "
    "interval holds 1. *Step*: CPU time of a training step of the largest batch; *kept*: what its forward pass holds for the backward pass; *peak*: of the process."
)


def _perplexities(job: dict[str, Any]) -> list[float]:
    return [run["perplexity"]["test"] for run in job["runs"]]


def _text_line(job: dict[str, Any]) -> str:
    data, model, training = job["data"], job["model"], job["settings"]["training"]
    most = training.get("max_updates")
    length = f"at most {most:,} updates" if most else f"{training['epochs']} epochs"
    splits = ", ".join(f"{part['tokens']:,} {name}" for name, part in data["splits"].items())
    return (
        f"Text: {data['name']}, {splits} tokens of {data['vocabulary']:,} pieces, unigram perplexity {np.exp(data['unigram_entropy']):.0f}. "
        f"Model: {model['blocks']} blocks, width {model['width']}, {job['settings']['heads']} heads, feed-forward {model['ff_dim']}, {model['positions']} positions; "
        f"{length} of {training['batch']} blocks an update, AdamW, learning rate {training['learning_rate']:g}; "
        f"seeds {', '.join(map(str, job['settings']['seeds']))}."
    )


def build_components(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write components.md, components.json and figures/components of `folder` from the records in components/."""
    from geomix.studies.algebra.components import COMPONENTS

    folder = Path(folder)
    jobs = {arm: read_object(folder / "components" / f"{arm}.json", "runs", "record") for arm in settings["arms"]}
    rows, comparisons = _language_table(jobs, "scalar")
    better = [c["arm"] for c in comparisons if c.get("verdict") == f"{c['arm']} better"]
    worse = [c["arm"] for c in comparisons if c.get("verdict") == "scalar better"]
    tied = [c["arm"] for c in comparisons if c.get("verdict") in ("tie", "identical")]
    ratio = {c["arm"]: f"{c['arm']} {c['ratio']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in comparisons if "low" in c}  # fmt: skip
    clauses = [f"{', '.join(ratio[n] for n in names)} {what}" for names, what in ((better, "better than the scalar baseline"), (worse, "worse"), (tied, "tied with it")) if names]  # fmt: skip
    if {"positions", "rope"} <= set(jobs):
        clauses.append(f"positions beside rope, plain rotary positions: {_beside(jobs, 'positions', 'rope')}")
    summary = "ratio of perplexities: " + "; ".join(clauses) if clauses else "one arm or one seed: nothing is compared"
    parts = [
        "# Phase 2: one component of the Transformer at a time",
        f"**In one sentence:** {summary}.",
        _text_line(jobs["scalar"]) + " " + machine_line(job["record"] for job in jobs.values()),
        "\n".join(markdown_table(LANGUAGE_HEAD, rows)),
        LANGUAGE_NOTE,
        "![Test perplexity of each arm](figures/components.png)",
        "*A mark a seed; the bar is the mean.*",
        "## Fixed before the run",
        "Budget held: parameters, within 5 % of the scalar baseline; FLOPs and time stand beside. Each arm replaces one thing by its form over Cl(3) and leaves the "
        "rest, initial weights included, as it was:",
        "\n".join(f"- `{arm}`: {COMPONENTS[arm]}" for arm in jobs),
        "Expected: `embeddings` identical (Adam does not see names); the others within a few per cent of the baseline, since nothing says that "
        "the factors of a text have the symmetry of Cl(3) (article, section 5.2).",
        remarks_section(folder, "components"),
    ]
    write_text(folder / "components.md", "\n\n".join(p for p in parts if p) + "\n")
    write_json(folder / "components.json", {"summary": summary, "comparisons": comparisons})
    draw(
        "components",
        folder / "figures",
        lambda: seed_marks({a: _perplexities(j) for a, j in jobs.items()}, "test perplexity"),
    )


def build_architectures(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write architectures.md, architectures.json and figures/architectures of `folder` from the records in architectures/."""
    folder = Path(folder)
    jobs = {arm: read_object(folder / "architectures" / f"{arm}.json", "runs", "record") for arm in settings["arms"]}
    held = lambda *kinds: {arm: job for arm, job in jobs.items() if job["held"] in kinds}
    by_parameters = held("parameters", "none")
    rows, comparisons = _language_table(by_parameters, "wide_scalar")
    by_flops = {arm: jobs[arm] for arm in ("scalar_flops", "clifford") if arm in jobs}
    flops_rows, flops_comparisons = _language_table(by_flops, "scalar_flops") if len(by_flops) == 2 else ([], [])
    sentences = [
        f"{arm} has {_beside(jobs, arm, shuffled)} times the perplexity of its shuffled table and {_beside(jobs, arm, 'wide_scalar')} times "
        "that of the dense model of the same size"
        for arm, shuffled in CONTROLS
        if arm in jobs and shuffled in jobs
    ]
    summary = "; ".join(sentences) or "no Clifford arm beside its shuffled table: nothing is compared"
    parts = [
        "# Phase 3: fair architectures",
        f"**In one sentence:** {summary}.",
        "Every feed-forward block of the model is made of the arm's linear maps; everything else is the same in all arms. The feed-forward weights start "
        "at a standard deviation of inputs^-1/2 here, so that maps which share their numbers start with outputs of one size; phase 2 starts them at the "
        "model's init_std, and its baseline is therefore another number.",
        "## Language, parameters held",
        "Parameters of the feed-forward within 5 % of the wider scalar model's (`ordinary` is the model with half its inner width, outside the budget); FLOPs and time differ and stand beside.",
        "\n".join(markdown_table(LANGUAGE_HEAD, rows)),
        *(
            [
                "## Language, FLOPs held",
                "A dense model with the FLOPs of the Clifford one, hence about eight times its feed-forward parameters.",
                "\n".join(markdown_table(LANGUAGE_HEAD, flops_rows)),
            ]
            if flops_rows
            else []
        ),
        LANGUAGE_NOTE,
        _text_line(jobs["wide_scalar"]) + " " + machine_line(job["record"] for job in jobs.values()),
        "![Test perplexity of each arm](figures/architectures.png)",
        "*A mark a seed; the bar is the mean.*",
        "## The maps",
        "\n".join(
            markdown_table(
                ["arm", "what", "inner width", "parameters of a block", "multiply-adds", "sharing", "span"],
                [
                    [
                        arm,
                        job["what"],
                        str(job["inner"]),
                        f"{job['block']['parameters']:,}",
                        f"{job['block']['macs']:,}",
                        job["tying"],
                        f"{job['span']}/{job['of']}" if "span" in job else "",
                    ]
                    for arm, job in jobs.items()
                ],
            )
        ),  # fmt: skip
        "*Span*: dimension of the maps that one pair of channels can be given, of dim²; left multiplication spans dim under any table, so that the shuffled arm has the same capacity.",
        _speech_part(folder),
        "## Fixed before the run",
        "The arms, the budgets and the comparison with the wider scalar model; beside it, Clifford against its shuffled table. Expected: ties between Clifford and shuffled (a text has no reason to know Cl(3)), "
        "and sharing that pays or costs whatever the signs.",
        remarks_section(folder, "architectures"),
    ]
    write_text(folder / "architectures.md", "\n\n".join(p for p in parts if p) + "\n")
    write_json(
        folder / "architectures.json",
        {"summary": summary, "parameters held": comparisons, "flops held": flops_comparisons},
    )
    draw(
        "architectures",
        folder / "figures",
        lambda: seed_marks({a: _perplexities(j) for a, j in jobs.items()}, "test perplexity"),
    )


def _beside(jobs: dict[str, Any], arm: str, other: str) -> str:
    return _ratio(_perplexities(jobs[arm]), _perplexities(jobs[other]))


def _ratio(a: list[float], b: list[float]) -> str:
    """Ratio of two arms' seeds with its t-interval of logarithms and what it says: `1.014 [0.987, 1.042] (a tie)`."""
    from geomix.statistics import t_interval_log_perplexity

    if min(len(a), len(b)) < 2:
        return f"{np.mean(a) / np.mean(b):.3f} (one seed: no interval)"
    t = t_interval_log_perplexity(a, b)
    verdict = "a tie" if t.low <= 1 <= t.high else "better" if t.ratio < 1 else "worse"
    return f"{t.ratio:.3f} [{t.low:.3f}, {t.high:.3f}] ({verdict})"


def _speech_part(folder: Path) -> str:
    return "## Speech\n\nThe same arms in a Conformer: [speech.md](speech.md)." if (folder / "speech").is_dir() else ""


def build_speech(folder: str | os.PathLike, arms: list[str]) -> None:
    """Write speech.md, speech.json and figures/speech of `folder` from the records in speech/."""
    folder = Path(folder)
    jobs = {arm: read_object(folder / "speech" / f"{arm}.json", "runs", "record") for arm in arms}
    base = jobs["wide_scalar"]
    sets = list(base["runs"][0]["wer"])
    rates = {arm: {s: [run["wer"][s] for run in job["runs"]] for s in sets} for arm, job in jobs.items()}
    show = lambda v: f"{np.mean(v):.1f}" + (f" ± {np.std(v, ddof=1):.1f}" if len(v) > 1 else "")
    rows = [
        [
            arm,
            f"{job['parameters']:,} ({job['parameters'] / base['parameters']:.3f})",
            f"{job['flops_per_audio_second'] / 1e6:.0f} ({job['flops_per_audio_second'] / base['flops_per_audio_second']:.2f})",
            f"{job['step_seconds']:.2f}",
            f"{job['activation_bytes'] / 1e6:.0f}",
            f"{job['record']['peak_memory_bytes'] / 1e6:.0f}",
            *(show(rates[arm][s]) for s in sets),
        ]
        for arm, job in jobs.items()
    ]
    head = ["arm", "parameters (×)", "MFLOP an audio-second (×)", "step, CPU-s", "kept, MB", "peak, MB", *(f"WER {s}, %" for s in sets)]  # fmt: skip
    settings, seeds = base["settings"], len(base["runs"])
    beside = lambda arm, other: _ratio(rates[arm][sets[0]], rates[other][sets[0]])
    summary = f"word error rates on {sets[0]}: " + ", ".join(f"{arm} {show(rates[arm][sets[0]])} %" for arm in jobs)
    for arm, shuffled in CONTROLS:
        if arm in jobs and shuffled in jobs:
            summary += (
                f"; {arm} errs {beside(arm, shuffled)} times as often as its shuffled table and {beside(arm, 'wide_scalar')} times as often "
                "as the dense model of the same size"
            )
    parts = [
        "# Phase 3 on speech: a Conformer whose feed-forward layers share their numbers",
        f"**In one sentence:** {summary}.",
        f"Corpus {settings['data']['corpus']['name']}; {settings['model']['blocks']} blocks, width {settings['model']['width']}, feed-forward "
        f"{settings['model']['ff_dim']}, {settings['training']['epochs']} epochs, {seeds} seed{'s' if seeds > 1 else ''}. "
        + machine_line(job["record"] for job in jobs.values()),
        "Budget held: parameters of the feed-forward, within 5 %; FLOPs and time stand beside.",
        "\n".join(markdown_table(head, rows)),
        "Mean ± standard deviation over seeds; ratios with the 95 % t-interval of the difference of mean logarithms, degrees of freedom min(n) - 1, as on the other pages.",
        "![Word error rate of each arm](figures/speech.png)",
        "## Fixed before the run",
        "Arms, budget and epochs. Expected: Clifford and its shuffled table alike.",
        remarks_section(folder, "speech"),
    ]
    write_text(folder / "speech.md", "\n\n".join(p for p in parts if p) + "\n")
    write_json(folder / "speech.json", {"summary": summary})
    draw(
        "speech",
        folder / "figures",
        lambda: seed_marks({a: r[sets[0]] for a, r in rates.items()}, f"WER on {sets[0]}, %"),
    )
