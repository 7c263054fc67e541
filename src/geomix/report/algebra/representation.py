"""Phase 1's page: every task with its verdict, each arm's costs and errors, and what was expected beside what was found."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remark
from geomix.report.figures import COLOURS, draw
from geomix.report.text import markdown_table
from geomix.studies.algebra.verdict import FLOORS, Verdict, compare_expectations, decide, outcome, table_medians

RANK_NOTE = (
    "*Rank*: directions in which the outputs can move when all parameters do (rank of the derivative, first table): what a parameter count hides. "
    "*Span*: dimension of the span of the maps x → (e_I x) e_J, of L². *Step*: CPU time of one training step of one model at the task's "
    "batch; *kept*: what its forward pass holds for the backward pass; *peak*: largest resident size of the job, whose stack holds all tables and seeds."
)


ARMS_NOTE = (
    "Arms: `clifford`, the table of Cl(n); `shuffled`, the same with random signs; `gauge`, the same algebra under other names, which must tie; `all_plus`, no "
    "minus sign; `other_signature`, Cl(0, n); `mixed_signature`, Cl(2, 1) or Cl(2, 2); `dense`, one matrix, and `wide_dense` with Clifford's FLOPs; `low_rank`, "
    "`complex`, `quaternion`, `grouped`, other ways of sharing numbers. *Beyond range*: error on rotations of angles that training never had. *Associator*: how far a "
    "table is from associative, 0 for an algebra."
)


def build_representation(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write representation.md, .csv, .json (verdicts and departures) and figures/representation of `folder`, the run's results."""
    from geomix.settings.algebra_jobs import arms_of
    from geomix.studies.algebra.tasks import TASKS

    folder = Path(folder)
    found = {
        task: {
            arm: read_object(
                folder / "representation" / task / f"{arm}.json", "errors", "parameters", "flops", "record"
            )
            for arm in arms_of(task, settings["arms"])
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
    summary = _summary({n: v.verdict for n, v in verdicts.items() if not TASKS[n].null})
    if nulls := {n: v.verdict for n, v in verdicts.items() if TASKS[n].null}:
        summary += f"; on the nulls, which have no geometry to use: {_summary(nulls)}"
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
        f"Ratios and figures take an error below {FLOORS['nmse']:g} (squared error), {100 * FLOORS['sign']:.2g} % (signs: half a sample of the test set) or "
        f"{FLOORS['angle']:g}° for that much: an exact zero has no ratio.",
        "## Fixed before the run",
        "The tasks, their sizes and factors, which arm is expected to do what and why (`studies/algebra/tasks.py`), and the decision rule, "
        "which is code and is tested on made-up results for each verdict (`studies/algebra/verdict.py`):",
        _rule(),
        f"Budget of every table: parameters that can influence the output, within 5 % of the Clifford arm's, except `wide_dense`, which holds FLOPs within 5 %; the other two "
        f"budgets stand beside. Full-batch Adam, {settings['steps']} steps, learning rate {settings['learning_rate']:g} with a cosine to 0, the same for all arms. "
        "Sizes and steps were tried out on other seeds.",
        ARMS_NOTE,
        RANK_NOTE,
        *sections,
        "## Beside what was expected",
        *_departures(folder, departures, found),
    ]
    write_text(folder / "representation.md", "\n\n".join(parts) + "\n")


def _summary(verdicts: dict[str, str]) -> str:
    kinds = list(verdicts.values())
    return "; ".join(
        f"{kind} on {kinds.count(kind)} ({', '.join(n for n, v in verdicts.items() if v == kind)})"
        for kind in dict.fromkeys(kinds)
    )


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
