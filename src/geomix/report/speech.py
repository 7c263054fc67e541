"""The report of a speech study: a line for each track, arm and set, contrasts, costs, and what limits the conclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from geomix.errors import UserError
from geomix.files import read_object
from geomix.report import agreement, plots
from geomix.report.columns import Column, Table, fixed, thousands
from geomix.report.expectations import expected_table
from geomix.report.pages import render
from geomix.report.references import reference_rows
from geomix.report.rows import COLUMNS, CSV, Row, rate
from geomix.report.text import interval_text, named_verdict
from geomix.speech.comparison import FEW_SPEAKERS
from geomix.speech.scoring import Counts, by_speaker, read_score
from geomix.statistics import bootstrap_rate
from geomix.statistics.targets import gate_line, outcome_mark
from geomix.training.record import SpeechPart
from geomix.training.results import Study, Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = (
    plots.Curve("training loss, nats an utterance", "train_loss"),
    plots.Curve("dev CER, %", "dev_cer"),
)
DETAILS = (
    "track", "arm", "set", "wer", "cer", "substitutions", "insertions", "deletions", "words", "speakers", "seeds",
    "remarks",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the main table: an arm on a track, or a published row; `rates` by set."""

    track: str
    arm: str
    size: str
    seeds: str
    rates: Mapping[str, str]


@dataclass(frozen=True)
class SpeechReport:
    """All rows of a study, and what is missing of it (in a partial report; otherwise nothing is)."""

    study: Study
    rows: tuple[Row, ...]
    parity: dict[str, Any] | None
    comparisons: Sequence[dict[str, Any]]
    missing: Mapping[tuple[str, str, int], list[str]] = field(default_factory=dict)
    references: Sequence[Row] = ()  # of published checkpoints decoded here

    @classmethod
    def of(cls, study: Study, comparisons: Sequence[dict[str, Any]], *, partial: bool) -> SpeechReport:
        """Read scores, records and the gate's measurement; what is absent is a `UserError` or, in a partial report, missing."""
        rows, missing = collect_rows(study, partial=partial)
        path = study.folder / "parity.json"
        # a parity.json of before the gate was taken away says nothing of this study
        gated = study.gate is not None and (path.is_file() or not partial)
        parity = read_object(path, "sentence", "passed") if gated else None
        mark = outcome_mark(study.gate, parity)
        references = reference_rows(
            study.folder / "granite", study.sets, resamples=study.resamples, seed=study.seed, partial=partial
        )
        rows = tuple(replace(row, mark=mark) for row in rows)
        return cls(study, rows, parity, comparisons, missing, references)

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

    @property
    def measured(self) -> dict[tuple[str, str, str], float]:
        """(track, set, arm) -> WER in %, of which the comparisons are differences."""
        return {(row.track, row.set, row.arm): row.wer.estimate for row in self.rows}

    def csv(self) -> str:
        """tables.csv: a line for each track, arm and set; rates in % with two decimals."""
        return Table.of(COLUMNS, [*self.rows, *self._absent(), *self.references]).pick(*CSV).csv()

    def _absent(self) -> Iterator[Row]:
        for track in self.study.tracks:
            for arm in self.study.arms:
                for name in self.study.sets:
                    if self.row(track, arm, name) is None:
                        yield Row(self.study.corpus, track, arm, name, 0, mark=self.mark, notes=("missing",))

    def page(self, figure_names: Sequence[str], template: str = "speech.md") -> str:
        """tables.md, by a template that is or extends speech.md."""
        study = self.study
        return render(
            template,
            study=study,
            report=self,
            gate=gate_line(study.gate, self.parity),
            main=main_table(self),
            planned=contrast_table(self, planned=True),
            exploratory=contrast_table(self, planned=False),
            expected=expected_table(study),
            agreement=agreement.tables(study) if agreement.has_tracks(study) else None,
            details=Table.of(COLUMNS, self.rows).pick(*DETAILS),
            costs=Table.of(COSTS, by_arm(self)),
            speakers={row.set: row.speakers for row in self.rows},
            noted={row.arm: row.notes[0] for row in self.references},
            data=data_lines(self),
            warnings=warnings(self),
            figures=figure_names,
        )

    def text(self) -> str:
        """The main table, the planned contrasts and the gate as aligned text for a terminal."""
        return render(
            "speech.txt",
            report=self,
            study=self.study,
            main=main_table(self),
            planned=contrast_table(self, planned=True),
            expected=expected_table(self.study),
            gate=gate_line(self.study.gate, self.parity).replace("*", ""),
            warnings=warnings(self),
        ).rstrip("\n")

    def figure(self, name: str) -> Figure | None:
        """One of `geomix.report.names.SPEECH_FIGURES`; None where there is nothing to show."""
        if name == "wer":
            return plots.error_rates(self.study, self.rows)
        if name == "training":
            return plots.curves(self, CURVES)
        return {"cost": plots.cost, "pairs": plots.pairs}[name](self)


def collect_rows(study: Study, *, partial: bool) -> tuple[list[Row], dict[tuple[str, str, int], list[str]]]:
    """Read the scores and records of a study.

    Returns its rows, and for a partial report {(track, arm, seed): files that are missing}; otherwise a missing
    record or score is a `UserError` that names it.
    """
    rows, missing = [], {}
    for track in study.tracks:
        for arm in study.arms:
            ready = []
            for trained in study.of(track, arm):
                absent = trained.missing(study.sets)
                if not absent:
                    ready.append(trained)
                elif partial:
                    missing[track, arm, trained.seed] = [str(path.relative_to(study.folder)) for path in absent]
                else:
                    raise UserError(
                        f"{absent[0]}: no such file, and the row of {arm} needs it: run the step that makes it, or ask "
                        "for the partial tables, which mark what is missing"
                    )
            if ready:
                rows += [_row(study, track, arm, name, ready) for name in study.sets]
    return rows, missing


def _row(study: Study, track: str, arm: str, name: str, trained: list[Trained]) -> Row:
    scores = [read_score(t.score_path(name)) for t in trained]
    errors, words = by_speaker(scores, [str(t.score_path(name)) for t in trained])
    if not words.sum():
        raise UserError(f"{trained[0].score_path(name)}: its reference has no words: a rate needs some")
    total = sum((s.words for s in scores), Counts())
    subject = trained[0].record.subject
    row = Row(
        corpus=study.corpus,
        track=track,
        arm=arm,
        set=name,
        seeds=len(trained),
        speakers=len(words),
        params=subject.parameters,
        unmatched=subject.unmatched,
        wer=bootstrap_rate(errors, words, resamples=study.resamples, seed=study.seed),
        cer=sum((s.characters for s in scores), Counts()).rate,
        words=int(words.sum()),
        substitutions=total.substitutions / len(scores),
        insertions=total.insertions / len(scores),
        deletions=total.deletions / len(scores),
        trained=tuple(trained),
    )
    return replace(row, notes=tuple(_notes(study, row)))


def _notes(study: Study, row: Row) -> Iterator[str]:
    """What a reader of this row must know."""
    if row.seeds == 1:
        yield "one seed: the interval holds no variation between seeds"
    seeds = study.seeds(row.track)
    if absent := len(seeds) - row.seeds:
        yield f"{absent} of {len(seeds)} seeds missing"
    if row.speakers < FEW_SPEAKERS:
        yield f"only {row.speakers} speakers"
    if row.unmatched:
        yield "unmatched size"
    if row.set not in study.test_sets:
        yield "epochs were selected on this set"


def main_table(report: SpeechReport) -> Table:
    """A line an arm, WER with its interval on each set; references below."""
    columns = [
        Column("track", lambda line: line.track),
        Column("arm", lambda line: line.arm),
        Column("parameters", lambda line: line.size),
        Column("seeds", lambda line: line.seeds),
        *(Column(f"{name} WER %", lambda line, n=name: line.rates.get(n, "-")) for name in report.study.sets),
    ]
    return Table.of(columns, [*_arm_lines(report), *_reference_lines(report)])


def _arm_lines(report: SpeechReport) -> Iterator[Line]:
    study = report.study
    for track in study.tracks:
        for arm in study.arms:
            found = [report.row(track, arm, name) for name in study.sets]
            of, first = len(study.seeds(track)), found[0]
            if first is None:
                missing = dict.fromkeys(study.sets, "missing")
                yield Line(track, arm, thousands(study.parameters(arm)), f"0 of {of}", missing)
                continue
            size = f"{first.params:,}" + (" (unmatched)" if first.unmatched else "")
            seeds = str(of) if first.seeds == of else f"{first.seeds} of {of}"
            yield Line(track, arm, size, seeds, {row.set: rate(row.wer) for row in found})


def _reference_lines(report: SpeechReport) -> Iterator[Line]:
    for arm in dict.fromkeys(row.arm for row in report.references):
        rows = [row for row in report.references if row.arm == arm]
        rates = {row.set: rate(row.wer) for row in rows}
        yield Line("granite (reference)", arm, thousands(rows[0].params), "-", rates)
    for reference in report.study.references:
        rates = {name: f"{wer:g}" for name, wer in reference["wer"].items() if name in report.study.sets}
        if rates:
            yield Line("reference", reference["system"], thousands(reference.get("parameters")), "-", rates)


CONTRASTS = (
    Column("contrast (a - b)", lambda e: f"{e['a']} - {e['b']}"),
    Column("track", lambda e: e["track"]),
    Column("set", lambda e: e["set"]),
    Column("difference, points", lambda e: e["difference"], show=fixed(2, "+")),
    Column("95 % percentile", lambda e: interval_text(e["low"], e["high"])),
    Column("95 % t", lambda e: interval_text(e["t_low"], e["t_high"])),
    Column("could have seen", lambda e: _could_have_seen(e)),
    Column("MAPSSWE p", lambda e: _p_values([m["p"] for m in e["mapsswe"]])),
    Column("Holm p", lambda e: _p_value(e["holm_p"])),
    Column("speakers", lambda e: str(e["speakers"])),
    Column("seeds", lambda e: f"{e['seeds_a']} / {e['seeds_b']}"),
    Column("verdict", lambda e: named_verdict(e["verdict"], e["a"], e["b"])),
)


def contrast_table(report: SpeechReport, *, planned: bool) -> Table:
    """The planned contrasts, or all the others, which Holm's correction leaves out."""
    tests = report.study.test_sets
    marked = lambda name: name if name in tests else f"{name} (selection)"
    columns = [replace(c, show=marked) if c.name == "set" else c for c in CONTRASTS if planned or c.name != "Holm p"]
    return Table.of(columns, [e for e in report.comparisons if e["planned"] == planned])


def _speech(trained: Trained) -> SpeechPart:
    """What the record of a speech training says besides; `UserError` for a language model's."""
    if not isinstance(part := trained.record.domain, SpeechPart):
        raise UserError(f"{trained.folder / 'record.json'}: is not of speech recognition: run the training step again")
    return part


def _cost(title: str, value: Callable[[Trained], float | None], scale: float = 1.0) -> Column:
    return Column(title, lambda trained: _mean_of(map(value, trained), scale))


COSTS = (
    Column("track", lambda trained: trained[0].track),
    Column("arm", lambda trained: trained[0].arm),
    Column("parameters", lambda trained: trained[0].record.subject.parameters, show=thousands),
    _cost("GFLOP / audio-s", lambda t: _speech(t).flops_per_audio_second, 1e-9),
    _cost("audio-s / s", lambda t: _speech(t).audio_seconds_per_second),
    _cost("MFU %", lambda t: t.record.course.mfu, 100),
    _cost("peak memory, GiB", lambda t: t.record.course.peak_memory_bytes, 2**-30),
    _cost("hours", lambda t: t.record.course.wall_seconds, 1 / 3600),
    _cost("epochs", lambda t: t.record.course.epochs),
    _cost("updates", lambda t: t.record.course.updates),
    Column("device", lambda trained: ", ".join(sorted({t.record.origin.device for t in trained}))),
)


def by_arm(report: SpeechReport) -> list[list[Trained]]:
    """The trainings of each track and arm that has some."""
    groups: dict[tuple[str, str], list[Trained]] = {}
    for trained in report.trained:
        groups.setdefault((trained.track, trained.arm), []).append(trained)
    return list(groups.values())


def warnings(report: SpeechReport) -> list[str]:
    """What limits the conclusions of this run, one sentence each."""
    study, found = report.study, []
    few = {row.set: row.speakers for row in report.rows if row.speakers < FEW_SPEAKERS}
    for name, speakers in few.items():
        found.append(f"{name} has only {speakers} speakers: intervals over so few are rough.")
    single = sorted({f"{row.arm} ({row.track})" for row in report.rows if row.seeds == 1})
    if single:
        found.append(f"One seed only: {', '.join(single)}. Their intervals hold no variation between seeds.")
    for row in report.rows:
        if row.unmatched and row.set == study.sets[0]:
            found.append(f"{row.arm} ({row.track}) is unmatched in size ({row.params:,} parameters).")
    for entry in report.comparisons:
        for warning in entry["warnings"]:
            if warning.endswith("verdict"):
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
        found += _about_trainings(report, what, value)
    if agreement.has_tracks(study):
        found += agreement.misses(study)
    for (track, arm, seed), files in report.missing.items():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        found.append(f"Missing: {arm} ({track}), seed {seed}: no {files[0]}{more}.")
    return found


def _about_trainings(report: SpeechReport, what: str, value: Callable[[Trained], str | None]) -> list[str]:
    """One sentence for each different text that `value` gives, with the trainings it gives it for."""
    groups: dict[str, list[str]] = {}
    for t in report.trained:
        text = value(t)
        if text:
            groups.setdefault(text, []).append(f"{t.arm} ({t.track}, seed {t.seed})")
    return [
        f"{what[0].upper()}{what[1:]} ({text}): "
        f"{'all trainings' if len(who) == len(report.trained) else ', '.join(who)}."
        for text, who in groups.items()
    ]


def _dropped(trained: Trained) -> str:
    found = _speech(trained).dropped
    counts = {"too long": found.too_long, "too short": len(found.too_short)}
    return ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)


def data_lines(report: SpeechReport) -> list[str]:
    """Utterances, hours and speed histogram of the training data, as the records have them."""
    seen = Counter()
    for t in report.trained:
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


def _mean_of(values: Iterable[float | None], scale: float) -> str:
    known = [float(v) * scale for v in values if v is not None]
    if not known:
        return "-"
    mean = sum(known) / len(known)
    return f"{mean:,.0f}" if mean >= 100 or mean.is_integer() else f"{mean:.3g}"


def _could_have_seen(entry: Mapping[str, Any]) -> str:
    """The smallest difference, and the smallest margin of equality, that had 80 % power (`statistics.verdicts`), in points."""
    found = [entry.get(key) for key in ("smallest_difference", "smallest_margin")]
    return "-" if None in found else " / ".join(f"{value:.1f}" for value in found)


def _p_value(p: float | None) -> str:
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _p_values(values: list[float | None]) -> str:
    known = sorted(p for p in values if p is not None)
    if not known:
        return "-"
    ends = [_p_value(known[0]), _p_value(known[-1])]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
