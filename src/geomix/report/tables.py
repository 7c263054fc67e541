"""Tables of a run: tables.csv, tables.md and the main table as text."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.report import agreement
from geomix.report.text import aligned_table, interval_text, markdown_table
from geomix.speech.comparison import FEW_SPEAKERS
from geomix.speech.scoring import Counts, by_speaker, read_score
from geomix.statistics import Interval, bootstrap_rate
from geomix.statistics.targets import gate_line, outcome_mark, spoken
from geomix.training.record import SpeechPart
from geomix.training.results import Study, Trained

CSV_COLUMNS = (
    "corpus", "track", "arm", "set", "seeds", "speakers", "params", "unmatched", "wer", "wer_low", "wer_high", "cer",
    "words", "substitutions", "insertions", "deletions", "note",
)  # fmt: skip

COST_NOTE = "Rates are those of the trainings as they ran: jobs side by side share a machine."


@dataclass(frozen=True)
class Row:
    """One arm on one set: its trainings (a seed each) pooled. Rates in %, `speakers` x seeds resampled for the ends.

    `words` are the set's reference words; substitutions, insertions and deletions are means over seeds, so that
    wer = 100 (sub + ins + del) / words.
    """

    track: str
    arm: str
    set: str
    trained: tuple[Trained, ...]
    speakers: int
    wer: Interval
    cer: float
    words: int
    substitutions: float
    insertions: float
    deletions: float

    @property
    def params(self) -> int:
        return self.trained[0].record.subject.parameters

    @property
    def unmatched(self) -> bool:
        return self.trained[0].record.subject.unmatched


@dataclass(frozen=True)
class Results:
    """All rows of a study, and what is missing of it (in a partial report; otherwise nothing is)."""

    study: Study
    rows: tuple[Row, ...]
    parity: dict[str, Any] | None
    comparisons: list[dict[str, Any]]
    missing: dict[tuple[str, str, int], list[str]] = field(default_factory=dict)
    references: list[dict[str, Any]] = field(default_factory=list)  # rows of published checkpoints decoded here

    def row(self, track: str, arm: str, name: str) -> Row | None:
        return next((r for r in self.rows if (r.track, r.arm, r.set) == (track, arm, name)), None)

    @property
    def trained(self) -> list[Trained]:
        """Trainings that have a row, in the order of the study."""
        seen = {t.folder: t for row in self.rows for t in row.trained}
        return list(seen.values())

    @property
    def mark(self) -> str:
        """What every table must carry in its title: empty when the gate's own arm reached its target."""
        return outcome_mark(self.study.gate, self.parity)


def collect_rows(study: Study, *, partial: bool) -> tuple[tuple[Row, ...], dict[tuple[str, str, int], list[str]]]:
    """Read the scores and records of a study.

    Returns its rows, and for a partial report {(track, arm, seed): files that are missing}; otherwise a missing
    record or score is a `UserError` that names it.
    """
    rows, missing = [], {}
    for track in study.tracks:
        for arm in study.arms:
            ready = []
            for seed in study.seeds(track):
                trained = study.trained(track, arm, seed)
                absent = trained.missing(study.sets)
                if not absent:
                    ready.append(trained)
                elif partial:
                    missing[track, arm, seed] = [str(path.relative_to(study.folder)) for path in absent]
                else:
                    raise UserError(
                        f"{absent[0]}: no such file, and the row of {arm} needs it: run the step that makes it, or ask "
                        "for the partial tables, which mark what is missing"
                    )
            if ready:
                rows += [_row(study, track, arm, name, ready) for name in study.sets]
    return tuple(rows), missing


def _row(study: Study, track: str, arm: str, name: str, trained: list[Trained]) -> Row:
    scores = [read_score(t.score_path(name)) for t in trained]
    errors, words = by_speaker(scores, [str(t.score_path(name)) for t in trained])
    if not words.sum():
        raise UserError(f"{trained[0].score_path(name)}: its reference has no words: a rate needs some")
    total = sum((s.words for s in scores), Counts())
    characters = sum((s.characters for s in scores), Counts())
    return Row(
        track=track,
        arm=arm,
        set=name,
        trained=tuple(trained),
        speakers=len(words),
        wer=bootstrap_rate(errors, words, resamples=study.resamples, seed=study.seed),
        cer=characters.rate,
        words=int(words.sum()),
        substitutions=total.substitutions / len(scores),
        insertions=total.insertions / len(scores),
        deletions=total.deletions / len(scores),
    )


def notes(results: Results, row: Row) -> list[str]:
    """What a reader of this row must know."""
    found = [results.mark] if results.mark else []
    if len(row.trained) == 1:
        found.append("one seed: the interval holds no variation between seeds")
    seeds = results.study.seeds(row.track)
    absent = len(seeds) - len(row.trained)
    if absent:
        found.append(f"{absent} of {len(seeds)} seeds missing")
    if row.speakers < FEW_SPEAKERS:
        found.append(f"only {row.speakers} speakers")
    if row.unmatched:
        found.append("unmatched size")
    if row.set not in results.study.test_sets:
        found.append("epochs were selected on this set")
    return found


def write_csv(results: Results) -> str:
    """tables.csv: a line for each track, arm and set; rates in % with two decimals."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for r in results.rows:
        writer.writerow(
            [
                results.study.corpus, r.track, r.arm, r.set, len(r.trained), r.speakers, r.params,
                str(r.unmatched).lower(), _fixed(r.wer.estimate), _fixed(r.wer.low), _fixed(r.wer.high), _fixed(r.cer),
                r.words, _mean(r.substitutions), _mean(r.insertions), _mean(r.deletions), "; ".join(notes(results, r)),
            ]
        )  # fmt: skip
    for track, arm, name in _without_rows(results):
        note = "; ".join(filter(None, (results.mark, "missing")))
        writer.writerow([results.study.corpus, track, arm, name, 0, *[""] * 11, note])
    writer.writerows([row[column] for column in CSV_COLUMNS] for row in results.references)
    return out.getvalue()


def _without_rows(results: Results) -> Iterable[tuple[str, str, str]]:
    for track in results.study.tracks:
        for arm in results.study.arms:
            for name in results.study.sets:
                if results.row(track, arm, name) is None:
                    yield track, arm, name


def main_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the main table: a line an arm, WER with its interval on each set; references below."""
    study = results.study
    header = ["track", "arm", "parameters", "seeds", *(f"{name} WER %" for name in study.sets)]
    lines = []
    for track in study.tracks:
        for arm in study.arms:
            found = [results.row(track, arm, name) for name in study.sets]
            if found[0] is None:
                size = study.parameters(arm)
                cells = ["-" if size is None else f"{size:,}", f"0 of {len(study.seeds(track))}"]
                lines.append([track, arm, *cells, *["missing"] * len(study.sets)])
                continue
            n = len(found[0].trained)
            lines.append(
                [
                    track,
                    arm,
                    f"{found[0].params:,}" + (" (unmatched)" if found[0].unmatched else ""),
                    str(n) if n == len(study.seeds(track)) else f"{n} of {len(study.seeds(track))}",
                    *(_rate(row.wer) for row in found),
                ]
            )
    for arm in dict.fromkeys(row["arm"] for row in results.references):
        of = {row["set"]: row for row in results.references if row["arm"] == arm}
        rates = [f"{r['wer']} [{r['wer_low']}, {r['wer_high']}]" if (r := of.get(name)) else "-" for name in study.sets]
        lines.append(["granite (reference)", arm, f"{next(iter(of.values()))['params']:,}", "-", *rates])
    for reference in study.references:
        rates = [f"{reference['wer'][name]:g}" if name in reference["wer"] else "-" for name in study.sets]
        if any(rate != "-" for rate in rates):
            lines.append(["reference", reference["system"], "-", "-", *rates])
    return header, lines


def contrast_table(results: Results, *, planned: bool) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the planned contrasts, or of all the others."""
    header = [
        "contrast (a - b)", "track", "set", "difference, points", "95 % percentile", "95 % t", "P(a better)",
        "MAPSSWE p", "speakers", "seeds", "verdict",
    ]  # fmt: skip
    if planned:
        header.insert(8, "Holm p")
    lines = []
    for e in results.comparisons:
        if e["planned"] != planned:
            continue
        line = [
            f"{e['a']} - {e['b']}",
            e["track"],
            e["set"] if e["set"] in results.study.test_sets else f"{e['set']} (selection)",
            f"{e['difference']:+.2f}",
            interval_text(e["low"], e["high"]),
            interval_text(e["t_low"], e["t_high"]),
            "-" if e["p_improvement"] is None else f"{e['p_improvement']:.2f}",
            _p_values([m["p"] for m in e["mapsswe"]]),
            str(e["speakers"]),
            f"{e['seeds_a']} / {e['seeds_b']}",
            {"a better": f"{e['a']} better", "b better": f"{e['b']} better"}.get(e["verdict"], e["verdict"]),
        ]
        if planned:
            line.insert(8, _p_value(e["holm_p"]))
        lines.append(line)
    return header, lines


def _detail_table(results: Results) -> tuple[list[str], list[list[str]]]:
    header = ["track", "arm", "set", "WER %", "CER %", "sub", "ins", "del", "words", "speakers", "seeds", "note"]
    lines = [
        [
            r.track, r.arm, r.set, _fixed(r.wer.estimate), _fixed(r.cer), _mean(r.substitutions), _mean(r.insertions),
            _mean(r.deletions), f"{r.words:,}", str(r.speakers), str(len(r.trained)),
            "; ".join(note for note in notes(results, r) if note != results.mark),
        ]
        for r in results.rows
    ]  # fmt: skip
    return header, lines


def _cost_table(results: Results) -> tuple[list[str], list[list[str]]]:
    header = [
        "track", "arm", "parameters", "GFLOP / audio-s", "audio-s / s", "MFU %", "peak memory, GiB", "hours",
        "epochs", "updates", "device",
    ]  # fmt: skip
    lines = []
    for track, arm, trained in _by_arm(results):
        speech, courses = [_speech(t) for t in trained], [t.record.course for t in trained]
        mean = lambda parts, name, scale=1.0: _mean_of([getattr(part, name) for part in parts], scale)
        lines.append(
            [
                track, arm, f"{trained[0].record.subject.parameters:,}", mean(speech, "flops_per_audio_second", 1e-9),
                mean(speech, "audio_seconds_per_second"), mean(courses, "mfu", 100),
                mean(courses, "peak_memory_bytes", 2**-30), mean(courses, "wall_seconds", 1 / 3600),
                mean(courses, "epochs"), mean(courses, "updates"),
                ", ".join(sorted({t.record.origin.device for t in trained})),
            ]
        )  # fmt: skip
    return header, lines


def _by_arm(results: Results) -> Iterable[tuple[str, str, list[Trained]]]:
    for track in results.study.tracks:
        for arm in results.study.arms:
            trained = [t for t in results.trained if (t.track, t.arm) == (track, arm)]
            if trained:
                yield track, arm, trained


def warnings(results: Results) -> list[str]:
    """What limits the conclusions of this run, one sentence each."""
    study, found = results.study, []
    few = {row.set: row.speakers for row in results.rows if row.speakers < FEW_SPEAKERS}
    for name, speakers in few.items():
        found.append(f"{name} has only {speakers} speakers: intervals over so few are rough.")
    single = sorted({f"{row.arm} ({row.track})" for row in results.rows if len(row.trained) == 1})
    if single:
        found.append(f"One seed only: {', '.join(single)}. Their intervals hold no variation between seeds.")
    for row in results.rows:
        if row.unmatched and row.set == study.sets[0]:
            found.append(f"{row.arm} ({row.track}) is unmatched in size ({row.params:,} parameters).")
    for entry in results.comparisons:
        for warning in entry["warnings"]:
            if warning.startswith("only the"):
                found.append(f"{entry['a']} - {entry['b']} on {entry['set']} ({entry['track']}): {warning}.")
    for what, value in (
        ("nondeterministic operations", lambda t: ", ".join(t.record.course.nondeterministic_ops or [])),
        ("training utterances dropped", _dropped),
        ("averaging", lambda t: t.averaging_note),
        (
            "trained from a working tree with uncommitted code",
            lambda t: t.record.origin.dirty and str(t.record.origin.commit)[:10],
        ),
    ):
        found += _about_trainings(results, what, value)
    if agreement.has_tracks(study):
        found += agreement.misses(study)
    for (track, arm, seed), files in results.missing.items():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        found.append(f"Missing: {arm} ({track}), seed {seed}: no {files[0]}{more}.")
    return found


def _about_trainings(results: Results, what: str, value: Callable[[Trained], str | None]) -> list[str]:
    """One sentence for each different text that `value` gives, with the trainings it gives it for."""
    groups: dict[str, list[str]] = {}
    for t in results.trained:
        text = value(t)
        if text:
            groups.setdefault(text, []).append(f"{t.arm} ({t.track}, seed {t.seed})")
    return [
        f"{what[0].upper()}{what[1:]} ({text}): "
        f"{'all trainings' if len(who) == len(results.trained) else ', '.join(who)}."
        for text, who in groups.items()
    ]


def _dropped(trained: Trained) -> str:
    found = _speech(trained).dropped
    counts = {"too long": found.too_long, "too short": len(found.too_short)}
    return ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)


def _speech(trained: Trained) -> SpeechPart:
    """What the record of a speech training says besides; `UserError` for a language model's."""
    if not isinstance(part := trained.record.domain, SpeechPart):
        raise UserError(f"{trained.folder / 'record.json'}: is not of speech recognition: run the training step again")
    return part


def _data_lines(results: Results) -> list[str]:
    """Utterances, hours and speed histogram of the training data, as the records have them."""
    seen = Counter()
    for t in results.trained:
        data = t.record.subject.data
        histogram = ", ".join(
            f"{factor} x {count:,}" for factor, count in sorted((data.get("speed_histogram") or {}).items())
        )
        if "utterances" in data and "seconds" in data:
            seen[
                f"{data['utterances']:,} utterances, {data['seconds'] / 3600:.2f} h"
                + (f"; by speed factor: {histogram}" if histogram else "")
            ] += 1
    return [f"Training data of {n} trainings: {text}." for text, n in seen.items()]


def render_markdown(results: Results, figures: Sequence[str] = ()) -> str:
    """tables.md."""
    study = results.study
    title = f"# {study.run}: {study.corpus}"
    mark = f" ({results.mark})" if results.mark else ""
    parts = [title, "", gate_line(study.gate, results.parity), ""]
    if results.missing:
        parts += [f"**Partial: {len(results.missing)} trainings are missing; they are listed under Warnings.**", ""]
    parts += [f"Hypothesis, written before the runs: {study.hypothesis or 'none was named'}", ""]

    def section(name: str, table: tuple[list[str], list[list[str]]], *text: str) -> None:
        header, lines = table
        if lines:
            parts.extend([f"## {name}{mark}", "", *markdown_table(header, lines), "", *text, ""])

    speakers = ", ".join(f"{name} {n}" for name, n in {row.set: row.speakers for row in results.rows}.items())
    section(
        "Word error rate",
        main_table(results),
        f"WER in %, mean over seeds, [95 % percentile interval, {study.resamples:,} resamples of speakers and seeds]. "
        f"Speakers: {speakers or '-'}. Rows marked *reference* are published results of others, for scale: "
        "other recipes, not measured here.",
        *(f"- {arm}: {note}" for arm, note in {row["arm"]: row["note"] for row in results.references}.items()),
        *(f"- {r['system']}: {r['source']}" for r in study.references),
    )
    section(
        "Planned contrasts",
        contrast_table(results, planned=True),
        "A difference below zero means that a makes fewer errors. An interval, percentile or t, that holds zero is a "
        "tie. MAPSSWE: range of p over the pairs of seeds. Holm's p corrects the t-interval's p over the planned "
        "contrasts of a track on its test sets.",
    )
    section(
        "Exploratory contrasts",
        contrast_table(results, planned=False),
        "Not planned: no correction for their number, so a verdict here is a hint for the next study.",
    )
    if agreement.has_tracks(study):
        section(
            "Tracks: the same data and weights",
            agreement.checks_table(study),
            "Measured without training, before any arm is compared: what the two code bases make of the same inputs.",
        )
        section(
            "Tracks: the trained arms",
            agreement.track_table(study),
            "Each arm trained by ESPnet beside the same arm trained here, paired over speakers. ESPnet chooses its epochs by its "
            "own cer_ctc, which also counts what is said on padded frames; its dev CER is that one.",
        )
        section(
            "Tracks: two ways to decode ESPnet's models",
            agreement.search_table(study),
            "ESPnet's inference at beam 1 is a prefix search; every comparison of arms uses argmax-collapse.",
        )
    section("Errors by kind", _detail_table(results), "Counts are means over seeds.")
    section("Cost", _cost_table(results), COST_NOTE, *_data_lines(results))
    found = warnings(results)
    if found:
        parts += ["## Warnings", "", *(f"- {line}" for line in found), ""]
    if figures:
        parts += ["## Figures", "", *(f"![{name}](figures/{name}.svg)\n" for name in figures)]
    return "\n".join(parts).rstrip("\n") + "\n"


def render_text(results: Results) -> str:
    """The main table, the planned contrasts and the gate as aligned text for a terminal."""
    study, parts = results.study, []
    for title, (header, lines) in (
        (f"{study.run}: word error rate, % [95 % interval over speakers and seeds]", main_table(results)),
        ("planned contrasts (tie: an interval holds zero)", contrast_table(results, planned=True)),
    ):
        if lines:
            parts += [title + (f" ({results.mark})" if results.mark else ""), *aligned_table(header, lines), ""]
    parity = results.parity and {**results.parity, "sentence": spoken(results.parity)}
    parts.append(gate_line(study.gate, parity).replace("*", ""))
    parts += [f"warning: {line}" for line in warnings(results)]
    return "\n".join(parts)


def _rate(interval: Interval) -> str:
    return f"{interval.estimate:.2f} {interval_text(interval.low, interval.high, '')}"


def _fixed(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else ""


def _mean(value: float) -> str:
    """A count, or a mean of counts with one decimal."""
    return str(int(value)) if float(value).is_integer() else f"{value:.1f}"


def _mean_of(values: list[Any], scale: float) -> str:
    values = [float(v) * scale for v in values if isinstance(v, int | float)]
    if not values:
        return "-"
    mean = sum(values) / len(values)
    return f"{mean:,.0f}" if mean >= 100 or mean.is_integer() else f"{mean:.3g}"


def _p_value(p: float | None) -> str:
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _p_values(values: list[float | None]) -> str:
    known = sorted(p for p in values if p is not None)
    if not known:
        return "-"
    ends = [_p_value(known[0]), _p_value(known[-1])]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
