"""The algebra study's results pages: a table, a figure and a verdict in one sentence for each phase, from records alone."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import atomic_path, read_json, write_json, write_text
from geomix.report.figures import COLOURS, MARKERS, STYLE
from geomix.report.tables import markdown_table
from geomix.studies.algebra.verdict import Verdict, compare_expectations, decide, outcome, table_medians

RANK_NOTE = (
    "*Rank*: directions in which the outputs can move when all parameters do (rank of the derivative, first table): what a parameter count hides. "
    "*Span*: dimension of the span of the maps x → (e_I x) e_J, of L². *Step*: CPU time of one training step of one model at the task's "
    "batch; *kept*: what its forward pass holds for the backward pass; *peak*: largest resident size of the job, whose stack holds all tables and seeds."
)
REMARKS = "remarks.json"


def draw(name: str, folder: Path, make: Callable[[], Any]) -> None:
    """Write a figure as SVG and PNG, with the style and the stable bytes of all figures."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = make()
        for form, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
            with atomic_path(folder / f"{name}.{form}") as path:
                figure.savefig(path, format=form, metadata=metadata)


def remark(folder: Path, key: str) -> str:
    """What was written by hand after the run on a departure, from remarks.json; nothing where there is none."""
    path = folder / REMARKS
    return read_json(path).get(key, "") if path.is_file() else ""


def machine_line(records: Iterable[dict[str, Any]]) -> str:
    """Where and when the jobs ran and what they took."""
    records = list(records)
    commits = sorted({(r["commit"] or "unknown")[:10] + (" (dirty)" if r["dirty"] else "") for r in records})
    seconds = sum(r["cpu_seconds"] for r in records)
    return (
        f"{len(records)} job{'s' if len(records) > 1 else ''}, {seconds / 60:.1f} CPU-minutes in all on one thread of {records[0]['cpu']}; torch "
        f"{records[0]['packages'].get('torch', '-')}; commit {', '.join(commits)}; finished {max(r['finished'] for r in records)[:16]} UTC."
    )


# -- phase 1 ------------------------------------------------------------------------------------------------------------------


def build_representation(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write representation.md, .csv, .json (verdicts and departures) and figures/representation of `folder`, the run's results."""
    from geomix.studies.algebra.settings import arms_of
    from geomix.studies.algebra.tasks import TASKS

    folder = Path(folder)
    found = {
        task: {
            arm: read_json(folder / "representation" / task / f"{arm}.json") for arm in arms_of(task, settings["arms"])
        }
        for task in settings["tasks"]
    }
    verdicts, rows, sections, departures = {}, [], [], []
    for name, jobs in found.items():
        task = TASKS[name]
        errors = {arm: job["errors"] for arm, job in jobs.items()}
        verdict = decide(errors, factor=task.factor, all_plus_fails=task.all_plus_fails, metric=task.metric)
        verdicts[name] = verdict
        expected = compare_expectations(task, errors)
        departures += [{"task": name, **row} for row in expected if row["departs"]]
        rows += [_csv_row(task, arm, job, jobs["clifford"]) for arm, job in jobs.items()]
        sections.append(_section(folder, task, jobs, verdict, expected))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "representation.csv", text.getvalue())
    verdict_rows = {n: {"verdict": v.verdict, "sentence": v.sentence, "separated": v.separated, "tables": v.tables, "warnings": list(v.warnings)} for n, v in verdicts.items()}  # fmt: skip
    draw("representation", folder / "figures", lambda: _strips(found, TASKS))
    records = [job["record"] for jobs in found.values() for job in jobs.values()]
    counts = [v.verdict for v in verdicts.values()]
    summary = "; ".join(
        f"{kind} on {counts.count(kind)} ({', '.join(n for n, v in verdicts.items() if v.verdict == kind)})"
        for kind in dict.fromkeys(counts)
    )
    write_json(folder / "representation.json", {"summary": summary, "verdicts": verdict_rows, "departures": departures})
    head = markdown_table(
        ["task", "Clifford", "shuffled, median of tables", "tables worse", "verdict"],
        [
            [
                TASKS[n].title,
                _error(TASKS[n], np.median(jobs["clifford"]["errors"])),
                _error(TASKS[n], np.median(jobs["shuffled"]["errors"])),
                f"{verdicts[n].separated} of {verdicts[n].tables}",
                verdicts[n].verdict,
            ]
            for n, jobs in found.items()
        ],
    )
    parts = [
        "# Phase 1: can a Clifford table exploit the structure that it expresses?",
        f"**In one sentence:** {summary}.",
        f"{len(found)} tasks, {settings['tables']} shuffled tables, seeds {', '.join(map(str, settings['seeds']))} of data and weights "
        f"(every arm and table sees the same). {machine_line(records)}",
        "\n".join(head),
        "![Test error of every arm, table and seed](figures/representation.png)",
        "*A mark a table and seed; the bar is the median, the dotted line Clifford's error times the task's factor.*",
        "## Fixed before the run",
        "The tasks, their sizes and factors, which arm is expected to do what and why (`studies/algebra/tasks.py`), and the decision rule, "
        "which is code and is tested on made-up results for each verdict (`studies/algebra/verdict.py`):",
        _rule(),
        f"Budget of every table: parameters that can influence the output, within 5 % of the Clifford arm's, except `wide_dense`, which holds FLOPs within 5 %; the other two "
        f"budgets stand beside. Full-batch Adam, {settings['steps']} steps, learning rate {settings['learning_rate']:g} with a cosine to 0, the same for all arms. "
        "Sizes and steps were tried out on other seeds.",
        RANK_NOTE,
        *sections,
        "## Beside what was expected",
        *_departures(folder, departures, found),
    ]
    write_text(folder / "representation.md", "\n\n".join(parts) + "\n")


def _rule() -> str:
    from geomix.studies.algebra import verdict

    body = verdict.__doc__.split("\n\n", 1)[1]
    return "\n".join(f"> {line}".rstrip() for line in body.strip().splitlines())


def _error(task: Any, value: float) -> str:
    if task.metric == "angle":
        return f"{value:.1f}°"
    return f"{100 * value:.1f} % wrong" if task.metric == "sign" else f"{value:.2g}"


def _spread(task: Any, values: Any) -> str:
    low, middle, high = np.quantile(np.asarray(values, float), (0.25, 0.5, 0.75))
    return f"{_error(task, middle)} [{_error(task, low)}, {_error(task, high)}]"


def _csv_row(task: Any, arm: str, job: dict[str, Any], clifford: dict[str, Any]) -> dict[str, Any]:
    low, middle, high = np.quantile(np.asarray(job["errors"], float), (0.25, 0.5, 0.75))
    return {
        "task": task.name,
        "arm": arm,
        "metric": task.metric,
        "tables": len(job["errors"]),
        "seeds": len(job["errors"][0]),
        "parameters": job["parameters"],
        "parameters_to_clifford": round(job["parameters"] / clifford["parameters"], 3),
        "flops": job["flops"],
        "flops_to_clifford": round(job["flops"] / clifford["flops"], 3),
        "tangent_rank": job["tangent_rank"],
        "step_ms": round(1e3 * job["step_seconds"], 3),
        "activation_bytes": job["activation_bytes"],
        "peak_bytes": job["record"]["peak_memory_bytes"],
        "error_q25": f"{low:.4g}",
        "error_median": f"{middle:.4g}",
        "error_q75": f"{high:.4g}",
        "beyond_median": f"{np.median(job['beyond']):.4g}" if "beyond" in job else "",
    }


def _section(folder: Path, task: Any, jobs: dict[str, Any], verdict: Verdict, expected: list[dict[str, Any]]) -> str:
    clifford = jobs["clifford"]
    base = float(table_medians(clifford["errors"], task.metric)[0])
    beyond = "beyond" in clifford
    rows = []
    for arm, job in jobs.items():
        ratios = table_medians(job["errors"], task.metric) / base
        cell = f"{ratios[0]:.3g}" if len(ratios) == 1 else f"{ratios.min():.3g} to {ratios.max():.3g}"
        held = "FLOPs" if arm == "wide_dense" and task.name != "fixed_rotation" else "parameters"
        off = job["parameters"] / clifford["parameters"] if held == "parameters" else job["flops"] / clifford["flops"]
        rows.append(
            [
                f"{arm}" + ("" if abs(off - 1) <= 0.05 else " (over budget)" if off > 1 else " (under budget)"),
                str(len(job["errors"])),
                f"{job['parameters']:,}",
                f"{job['flops']:,}",
                f"{1e3 * job['step_seconds']:.2f}",
                f"{job['tangent_rank']:,}",
                f"{job['tables'][0]['span']}/{job['tables'][0]['of']}" if job.get("tables") else "",
                f"{job['activation_bytes'] / 1e6:.2f}",
                f"{job['record']['peak_memory_bytes'] / 1e6:.0f}",
                _spread(task, job["errors"]),
                *([f"{np.median(job['beyond']):.2g}"] if beyond else []),
                cell,
            ]
        )
    head = ["arm", "tables", "parameters", "FLOPs", "step, ms", "rank", "span", "kept, MB", "peak, MB", "error, median [quartiles]"]  # fmt: skip
    head += ["beyond range"] if beyond else []
    metric = {"nmse": "squared error over the target's variance", "sign": "share of wrong signs", "angle": "median angle, degrees"}[task.metric]  # fmt: skip
    parts = [
        f"## {task.title}",
        f"`{task.name}`: {task.samples} training samples, {metric}; factor {task.factor:g}. "
        f"Tying: {clifford['tying']}; scalar arms: {jobs['dense']['tying'] if 'dense' in jobs else '-'}.",
        f"**{verdict.sentence}**" + "".join(f" ({w}.)" for w in verdict.warnings),
        "\n".join(markdown_table([*head, "× Clifford"], rows)),
    ]
    if "by_samples" in clifford:
        parts += ["By number of pairs, median over rotations and tables (in brackets: sigma² rank / 8N, what theory gives an arm that holds the truth):",
                  "\n".join(_by_samples(jobs))]  # fmt: skip
    if "floors" in clifford:
        floors = {k: np.mean([f[k] for f in clifford["floors"]]) for k in clifford["floors"][0]}
        parts.append(
            "Estimators that know the geometry: " + ", ".join(f"{k} {v:.2f}°" for k, v in floors.items()) + "."
        )
    parts += ["Shuffled tables:", "\n".join(_shuffled_table(task, jobs, base))]
    return "\n\n".join(parts)


def _by_samples(jobs: dict[str, Any]) -> list[str]:
    sizes = sorted(jobs["clifford"]["by_samples"], key=int)
    cell = lambda job, n: (
        f"{np.median(job['by_samples'][n]):.2g}" + (f" ({job['expected'][n]:.2g})" if job["expected"] else "")
    )
    return markdown_table(
        ["arm", "parameters", *(f"N = {n}" for n in sizes)],
        [[arm, str(job["parameters"]), *(cell(job, n) for n in sizes)] for arm, job in jobs.items()],
    )


def _shuffled_table(task: Any, jobs: dict[str, Any], base: float) -> list[str]:
    job = jobs["shuffled"]
    medians = table_medians(job["errors"], task.metric)
    pairs = lambda entry, g: "-" if not entry[f"anticommuting_grade{g}"][1] else "{} of {}".format(*entry[f"anticommuting_grade{g}"])  # fmt: skip
    return markdown_table(
        [
            "table",
            "vectors that anticommute",
            "bivectors that anticommute",
            "associator",
            "span",
            "error",
            "× Clifford",
            "",
        ],
        [
            [
                entry["name"],
                pairs(entry, 1),
                pairs(entry, 2),
                f"{entry['associator']:.2f}",
                f"{entry['span']}/{entry['of']}",
                _error(task, medians[t]),
                f"{medians[t] / base:.3g}",
                outcome(float(medians[t]), base, task.factor),
            ]
            for t, entry in enumerate(job["tables"])
        ],
    )


def _departures(folder: Path, departures: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    from geomix.studies.algebra.tasks import TASKS

    total = sum(
        len(compare_expectations(TASKS[n], {a: j["errors"] for a, j in jobs.items()})) for n, jobs in found.items()
    )
    if not departures:
        return [f"All {total} expectations were met."]
    text = [f"{total - len(departures)} of {total} expectations were met; these were not:"]
    rows = []
    for d in departures:
        low, high = min(d["ratios"]), max(d["ratios"])
        ratio = f"{low:.3g}" if len(d["ratios"]) == 1 else f"{low:.3g} to {high:.3g}"
        note = remark(folder, f"{d['task']}/{d['arm']}") or "not explained"
        rows.append([d["task"], d["arm"], f"{d['expected']} ({d['why']})", f"{d['found']}, {ratio} × Clifford", note])
    return [*text, "\n".join(markdown_table(["task", "arm", "expected", "found", "explanation, written after the run"], rows))]  # fmt: skip


def _strips(found: dict[str, Any], tasks: dict[str, Any]):
    from matplotlib.figure import Figure

    names = list(found)
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(4.3 * columns, 3.1 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    for ax, name in zip(axes.flat, names, strict=False):
        task, jobs = tasks[name], found[name]
        base = float(table_medians(jobs["clifford"]["errors"], task.metric)[0])
        for y, (_arm, job) in enumerate(jobs.items()):
            errors = np.asarray(job["errors"], float)
            floor = table_medians([[0.0]], task.metric)[0]
            for t, row in enumerate(np.maximum(errors, floor)):
                shift = 0.0 if len(errors) == 1 else 0.56 * (t / (len(errors) - 1) - 0.5)
                ax.plot(row, [y + shift] * len(row), ls="", ms=3, alpha=0.55, color=COLOURS[0 if y == 0 else 1 if "shuffled" in _arm else 3], marker="o")  # fmt: skip
            middle = max(np.median(errors), floor)
            ax.plot([middle] * 2, [y - 0.36, y + 0.36], color="#000000", lw=1.6)
        ax.axvline(task.factor * base, color="#808080", lw=0.9, ls=(0, (2, 3)))
        if task.metric != "angle" and not task.null:
            ax.set_xscale("log")
        ax.set_yticks(range(len(jobs)), list(jobs))
        ax.tick_params(axis="y", labelsize=7.5)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        label = {"nmse": "squared error / variance", "sign": "wrong signs", "angle": "median angle, degrees"}[
            task.metric
        ]
        ax.set_xlabel(label)
        ax.set_title(task.title, fontsize=9)
    return figure


# -- phases 2 and 3 -----------------------------------------------------------------------------------------------------------


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
    splits = ", ".join(f"{part['tokens']:,} {name}" for name, part in data["splits"].items())
    return (
        f"Text: {data['name']}, {splits} tokens of {data['vocabulary']:,} pieces, unigram perplexity {np.exp(data['unigram_entropy']):.0f}. "
        f"Model: {model['blocks']} blocks, width {model['width']}, {job['settings']['heads']} heads, feed-forward {model['ff_dim']}, {model['positions']} positions; "
        f"{training['epochs']} epochs of {training['batch']} blocks an update, AdamW, learning rate {training['learning_rate']:g}; "
        f"seeds {', '.join(map(str, job['settings']['seeds']))}."
    )


def build_components(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write components.md, components.json and figures/components of `folder` from the records in components/."""
    from geomix.studies.algebra.components import COMPONENTS

    folder = Path(folder)
    jobs = {arm: read_json(folder / "components" / f"{arm}.json") for arm in settings["arms"]}
    rows, comparisons = _language_table(jobs, "scalar")
    better = [c["arm"] for c in comparisons if c.get("verdict") == f"{c['arm']} better"]
    worse = [c["arm"] for c in comparisons if c.get("verdict") == "scalar better"]
    tied = [c["arm"] for c in comparisons if c.get("verdict") in ("tie", "identical")]
    clauses = [f"{', '.join(names)} {what}" for names, what in ((better, "better than the scalar baseline"), (worse, "worse"), (tied, "tied with it")) if names]  # fmt: skip
    summary = "; ".join(clauses)
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
        _hand(folder, "components"),
    ]
    write_text(folder / "components.md", "\n\n".join(p for p in parts if p) + "\n")
    write_json(folder / "components.json", {"summary": summary, "comparisons": comparisons})
    draw(
        "components",
        folder / "figures",
        lambda: _marks({a: _perplexities(j) for a, j in jobs.items()}, "test perplexity"),
    )


def build_architectures(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write architectures.md, architectures.json and figures/architectures of `folder` from the records in architectures/."""
    folder = Path(folder)
    jobs = {arm: read_json(folder / "architectures" / f"{arm}.json") for arm in settings["arms"]}
    held = lambda *kinds: {arm: job for arm, job in jobs.items() if job["held"] in kinds}
    by_parameters = held("parameters", "none")
    rows, comparisons = _language_table(by_parameters, "wide_scalar")
    by_flops = {arm: jobs[arm] for arm in ("scalar_flops", "clifford") if arm in jobs}
    flops_rows, flops_comparisons = _language_table(by_flops, "scalar_flops") if len(by_flops) == 2 else ([], [])
    sentences = [
        _shuffle_sentence(jobs, *pair)
        for pair in (("clifford", "shuffled"), ("clifford_two_sided", "shuffled_two_sided"))
    ]
    summary = "; ".join(s for s in sentences if s)
    parts = [
        "# Phase 3: fair architectures",
        f"**In one sentence:** {summary}.",
        "Every feed-forward block of the model is made of the arm's linear maps; everything else is the same.",
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
        _hand(folder, "architectures"),
    ]
    write_text(folder / "architectures.md", "\n\n".join(p for p in parts if p) + "\n")
    write_json(
        folder / "architectures.json",
        {"summary": summary, "parameters held": comparisons, "flops held": flops_comparisons},
    )
    draw(
        "architectures",
        folder / "figures",
        lambda: _marks({a: _perplexities(j) for a, j in jobs.items()}, "test perplexity"),
    )


def _shuffle_sentence(jobs: dict[str, Any], arm: str, shuffled: str) -> str:
    from geomix.statistics import t_interval_log_perplexity

    if arm not in jobs or shuffled not in jobs:
        return ""
    a, b = _perplexities(jobs[arm]), _perplexities(jobs[shuffled])
    if min(len(a), len(b)) < 2:
        return f"{arm} has {np.mean(a) / np.mean(b):.3f} times the perplexity of its shuffled table (one seed: no interval)"
    t = t_interval_log_perplexity(a, b)
    verdict = (
        "a tie: sharing, not geometry"
        if t.low <= 1 <= t.high
        else "geometry helps"
        if t.ratio < 1
        else "geometry hurts"
    )
    return f"{arm} has {t.ratio:.3f} [{t.low:.3f}, {t.high:.3f}] times the perplexity of its shuffled table ({verdict})"


def _hand(folder: Path, key: str) -> str:
    text = remark(folder, key)
    return f"## Remarks, written after the run\n\n{text}" if text else ""


def _marks(values: dict[str, list[float]], label: str):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.2 + 0.34 * len(values)), layout="constrained")
    ax = figure.subplots()
    for y, numbers in enumerate(values.values()):
        ax.plot(numbers, [y] * len(numbers), ls="", marker=MARKERS[0], ms=5.5, alpha=0.6, color=COLOURS[0])
        ax.plot([np.mean(numbers)] * 2, [y - 0.3, y + 0.3], color="#000000", lw=1.6)
    ax.set_yticks(range(len(values)), list(values))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(label)
    return figure


def _speech_part(folder: Path) -> str:
    return "## Speech\n\nThe same arms in a Conformer: [speech.md](speech.md)." if (folder / "speech").is_dir() else ""


def build_speech(folder: str | os.PathLike, arms: list[str]) -> None:
    """Write speech.md and figures/speech of `folder` from the records in speech/."""
    folder = Path(folder)
    jobs = {arm: read_json(folder / "speech" / f"{arm}.json") for arm in arms}
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
    sentence = "; ".join(f"{arm} {show(rates[arm][sets[0]])} %" for arm in jobs)
    one = " One seed: no difference between arms is measured." if seeds == 1 else ""
    parts = [
        "# Phase 3 on speech: a Conformer whose feed-forward layers share their numbers",
        f"**In one sentence:** word error rates on {sets[0]}: {sentence}.{one}",
        f"Corpus {settings['data']['corpus']['name']}; {settings['model']['blocks']} blocks, width {settings['model']['width']}, feed-forward "
        f"{settings['model']['ff_dim']}, {settings['training']['epochs']} epochs, {seeds} seed{'s' if seeds > 1 else ''}. "
        + machine_line(job["record"] for job in jobs.values()),
        "Budget held: parameters of the feed-forward, within 5 %; FLOPs and time stand beside.",
        "\n".join(markdown_table(head, rows)),
        "![Word error rate of each arm](figures/speech.png)",
        "## Fixed before the run",
        "Arms, budget and epochs. Expected: Clifford and its shuffled table alike.",
        _hand(folder, "speech"),
    ]
    write_text(folder / "speech.md", "\n\n".join(p for p in parts if p) + "\n")
    draw(
        "speech", folder / "figures", lambda: _marks({a: r[sets[0]] for a, r in rates.items()}, f"WER on {sets[0]}, %")
    )


# -- phase 4 ------------------------------------------------------------------------------------------------------------------

QUESTIONS = {
    "direction": "Do vector components encode a direction?",
    "half_turn": "Do hidden vectors hold an intermediate direction of the problem?",
    "plane": "Do bivectors hold planes of the problem?",
    "composition": "Do the rotors compose?",
    "intervention": "Does an intervention on one grade do what geometry predicts?",
}


def build_interpretability(folder: str | os.PathLike) -> None:
    """Write interpretability.md and figures/interpretability of `folder` from interpretability/tests.json."""
    from geomix.studies.algebra import interpretability

    folder = Path(folder)
    found = read_json(folder / "interpretability" / "tests.json")
    tests = {name: found["tests"][name] for name in QUESTIONS}
    kinds = list(dict.fromkeys(t["verdict"] for t in tests.values()))
    sentence = "; ".join(f"{kind}: {', '.join(n for n, t in tests.items() if t['verdict'] == kind)}" for kind in kinds)
    span = lambda v: f"{np.median(v):.2g} ({np.min(v):.2g} to {np.max(v):.2g})"
    rows = [
        [QUESTIONS[name], test["what"], test["unit"], *(span(test["values"][k]) if k in test["values"] else "-" for k in ("trained", "untrained", "shuffled", "dense")), test["verdict"]]
        for name, test in tests.items()
    ]  # fmt: skip
    pairs = tests["plane"]["pairs"]
    names = list(pairs["trained"])
    parts = [
        "# Phase 4: do the grades mean something?",
        f"**In one sentence:** {sentence}.",
        "Nothing is assumed interpretable: each question is a number that is also measured on the same network untrained, and trained under random signs. "
        f"Smaller is better; median (range) over models. {machine_line([found['record']])}",
        "\n".join(
            markdown_table(
                [
                    "question",
                    "what is measured",
                    "unit",
                    "Clifford, trained",
                    "untrained",
                    "shuffled",
                    "dense",
                    "verdict",
                ],
                rows,
            )
        ),
        "![The five tests](figures/interpretability.png)",
        "*Trained Clifford networks, the same untrained, and trained under random signs; a mark a model (table and seed). Below: composed rotations by length, and the effect of a gain on the first layer's bivectors.*",
        "Bivectors of products of two rotors that the first layer's bivectors do not explain (median share); the composition passes through R2R1 or R3R2:",
        "\n".join(
            markdown_table(["network", *names], [[kind, *(f"{pairs[kind][n]:.2g}" for n in names)] for kind in pairs])
        ),
        f"Share of the route R3 (R2 R1) in the second layer, fitted with the intervention: trained {span(tests['intervention']['route']['trained'])}.",
        "## Fixed before the run",
        "The tests, their nulls and the rule:",
        "\n".join(f"> {line}".rstrip() for line in interpretability.__doc__.split("\n\n", 1)[1].strip().splitlines()),
        _hand(folder, "interpretability"),
    ]
    write_text(folder / "interpretability.md", "\n\n".join(p for p in parts if p) + "\n")
    verdicts = {name: test["verdict"] for name, test in tests.items()}
    write_json(folder / "interpretability.json", {"summary": sentence, "verdicts": verdicts})
    draw("interpretability", folder / "figures", lambda: _tests_figure(tests))


def _tests_figure(tests: dict[str, Any]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    kinds = ("trained", "untrained", "shuffled", "dense")
    looks = {kind: {"color": COLOURS[i], "marker": MARKERS[i]} for i, kind in enumerate(kinds)}
    for ax, (name, test) in zip(top.subplots(1, len(tests)), tests.items(), strict=True):
        for x, kind in enumerate(k for k in kinds if k in test["values"]):
            values = np.maximum(test["values"][kind], 1e-3)
            jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else [0]
            ax.plot(x + np.asarray(jitter), values, ls="", ms=3.5, alpha=0.6, **looks[kind])
        ax.set_yscale("log")
        ax.set_xticks(range(len(test["values"])), [k for k in kinds if k in test["values"]], rotation=30, fontsize=7.5)
        ax.set_ylabel(test["unit"], fontsize=8)
        ax.set_title(name, fontsize=9)
        ax.grid(axis="x", visible=False)
    left, right = bottom.subplots(1, 2)
    for ax, name in ((left, "composition"), (right, "intervention")):
        for kind in (k for k in kinds if k in tests[name]["curve"]):
            points = tests[name]["curve"][kind]
            x = sorted(points, key=float)
            x = [g for g in x if not (name == "intervention" and float(g) == 1)]
            low, middle, high = np.quantile([points[g] for g in x], (0, 0.5, 1), axis=1)
            place = [float(g) for g in x]
            ax.plot(place, middle, lw=1.5, ms=4.5, label=kind, **looks[kind])
            ax.fill_between(place, np.maximum(low, 1e-3), high, color=looks[kind]["color"], alpha=0.12, lw=0)
        ax.set_yscale("log")
    left.set_xlabel("rotors composed")
    left.set_ylabel("median angle to the truth, degrees")
    left.set_xscale("log")
    left.set_xticks([3, 5, 9, 17, 33], ["3", "5", "9", "17", "33"])
    left.minorticks_off()
    right.set_xlabel("gain on the first layer's bivectors")
    right.set_ylabel("error of the prediction / change")
    right.axhline(1, color="#808080", lw=0.9, ls=(0, (2, 3)))
    left.legend(frameon=False, fontsize=8)
    return figure
