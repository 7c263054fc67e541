"""The report of a language study: a line an arm, contrasts of log perplexity, pairs layer by layer."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from geomix.files import read_object
from geomix.report import plots
from geomix.report.columns import Column, Table, fixed, thousands
from geomix.report.expectations import expected_table
from geomix.report.pages import render
from geomix.statistics import ratio_method
from geomix.statistics.targets import NO_GATE, named_sources, seeds_named, short_aim, spoken
from geomix.training.results import Study, Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Spread:
    """Mean over seeds and standard deviation; None with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(round(statistics.fmean(values), 2), round(statistics.stdev(values), 2) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.deviation is None else f" ± {self.deviation:.1f}")


@dataclass(frozen=True)
class Row:
    """One arm: perplexities of its seeds at their best epochs, by the mean over batches and by `tokens`; or a published row."""

    corpus: str
    arm: str
    seeds: int | str = ""
    params: int | None = None
    unmatched: bool = False
    valid: Spread | None = None
    test: Spread | None = None
    valid_token: float | None = None
    test_token: float | None = None
    best_epoch: str = ""
    tokens_per_second: int | None = None
    note: str = ""


def _split(name: str) -> list[Column]:
    spread = lambda row: getattr(row, name)
    return [
        Column(name, spread, show=lambda v: "" if v is None else str(v), csv=lambda v: v.mean),
        Column(f"{name}_sd", lambda row: row and spread(row) and spread(row).deviation),
        Column(f"{name}_token", lambda row: getattr(row, f"{name}_token"), f"{name}, by tokens", fixed(1)),
    ]


COLUMNS = (
    Column("corpus", lambda row: row.corpus),
    Column("arm", lambda row: row.arm),
    Column("seeds", lambda row: row.seeds),
    Column("params", lambda row: row.params, "parameters", lambda v: "" if v is None else thousands(v)),
    Column("unmatched", lambda row: row.unmatched),
    *_split("valid"),
    *_split("test"),
    Column("best_epoch", lambda row: row.best_epoch, "best epoch"),
    Column("tokens_per_second", lambda row: row.tokens_per_second),
    Column("note", lambda row: row.note),
    # on pages alone
    Column("name", lambda row: row.arm + (" (unmatched)" if row.unmatched else ""), "arm"),
)
CSV = tuple(column.name for column in COLUMNS[:-1])
PAGE = ("name", "params", "seeds", "valid", "test", "valid_token", "test_token", "best_epoch")


def _ends(low: str, high: str, between: str = " to ") -> Any:
    return lambda c: f"{c[low]:.3f}{between}{c[high]:.3f}" if low in c else ""


PUBLISHED = {
    ("grassmann", "transformer"): "1.331 [1.301, 1.362]: 330.0 against 247.9",
    ("grassmann", "symmetric"): "1.009 [0.994, 1.025]: 330.0 against 327.0, a tie",
    ("one_offset", "grassmann"): "312.6 against 330.0, one seed",
}
"""What [Tested2026] measured of a contrast: e01, raw WikiText-2, validation perplexities, three seeds. Its e02 was not run."""

CONTRASTS = (
    Column("set", lambda c: c["set"]),
    Column("contrast", lambda c: f"{c['a']} / {c['b']}" + ("" if c["planned"] else " (exploratory)")),
    Column("ratio", lambda c: c["ratio"], show=fixed(3)),
    Column("95 % interval", _ends("low", "high")),
    Column("Welch", _ends("welch_low", "welch_high")),
    Column("could have seen", _ends("smallest_ratio", "smallest_margin", " / ")),
    Column("verdict", lambda c: c["verdict"]),
)
PUBLISHED_COLUMN = Column(
    "[Tested2026], valid", lambda c: PUBLISHED.get((c["a"], c["b"]), "") if c["set"] == "valid" else ""
)


@dataclass(frozen=True)
class Layers:
    """An arm's pairs at the `start` or the `end`, a number a layer, averaged over seeds."""

    arm: str
    when: str
    sine: np.ndarray
    narrow: np.ndarray
    gate: np.ndarray


LAYERS = (
    Column("arm", lambda layers: layers.arm),
    Column("when", lambda layers: layers.when),
    Column("median sine, first to last layer", lambda layers: " ".join(f"{v:.2f}" for v in layers.sine)),
    Column("below 0.05, at most", lambda layers: f"{100 * layers.narrow.max():.2f} %"),
    Column("mean gate, first to last layer", lambda layers: " ".join(f"{v:.2f}" for v in layers.gate)),
)


@dataclass(frozen=True)
class LanguageReport:
    """A study with all its records, and the comparisons of its arms."""

    study: Study
    comparisons: Sequence[dict[str, Any]]

    @property
    def trained(self) -> list[Trained]:
        """All trainings of the study."""
        return self.study.trainings

    @property
    def comparable(self) -> bool:
        """Whether the published perplexities, which are of raw WikiText-2, belong beside these."""
        corpus = self.study.settings["corpus"]
        return (corpus["kind"], corpus.get("version")) == ("wikitext", "raw")

    @cached_property
    def mark(self) -> str:
        """What must stand on every table and figure, or nothing."""
        marks = [] if self.comparable else ["not comparable with raw WikiText-2"]
        path = self.study.folder / "parity.json"
        if self.study.gate is None:
            marks.append(NO_GATE)
        elif path.is_file() and (parity := read_object(path, "anchor"))["anchor"] is None:
            marks.append(f"{short_aim(parity)} not reached")
        return "; ".join(marks)

    @property
    def gate(self) -> str:
        """What the gate measured and where its bounds come from; empty without a gate."""
        if self.study.gate is None:
            return ""
        parity = read_object(self.study.folder / "parity.json", "sentence", "seeds")
        return f"{spoken(parity)} ({seeds_named(parity['seeds'])}).{named_sources(parity)}"

    @property
    def measured(self) -> dict[tuple[str, str, str], float]:
        """("", split, arm) -> mean ln(perplexity), of which the comparisons are differences."""
        values = self.study.perplexities
        return {
            ("", s, arm): float(np.mean(np.log(values(arm, s)))) for arm in self.study.arms for s in self.study.sets
        }

    @property
    def rows(self) -> list[Row]:
        """A row an arm."""
        return [self._row(arm) for arm in self.study.arms]

    def _row(self, arm: str) -> Row:
        study, records = self.study, [trained.record for trained in self.study.of("", arm)]
        notes = filter(None, (self.mark, "one seed: no interval" if len(records) == 1 else ""))
        token = lambda split: round(statistics.fmean(study.perplexities(arm, split, "token")), 2)
        return Row(
            corpus=study.corpus,
            arm=arm,
            seeds=len(records),
            params=records[0].subject.parameters,
            unmatched=records[0].subject.unmatched,
            valid=Spread.of(study.perplexities(arm, "valid")),
            test=Spread.of(study.perplexities(arm, "test")),
            valid_token=token("valid"),
            test_token=token("test"),
            best_epoch=" ".join(str(record.domain.best_epoch) for record in records),
            tokens_per_second=round(statistics.fmean(record.domain.tokens_per_second for record in records)),
            note="; ".join(notes),
        )

    def _references(self) -> Iterator[Row]:
        """Published rows, of raw WikiText-2 at full length."""
        of = "" if self.comparable else "; raw WikiText-2, the whole recipe"
        for r in self.study.references:
            splits = {split: Spread(r[split], None) for split in ("valid", "test") if split in r}
            yield Row("", r["system"], params=r.get("parameters"), **splits, best_epoch=r["source"] + of)

    @property
    def other_models(self) -> dict[str, str]:
        """Arm -> its layers and blocks of tokens, of the arms that differ in them from the study's model."""
        shape = lambda subject: (subject.settings["model"]["blocks"], subject.data["block"])
        usual, said = shape(self.trained[0].record.subject), "{} layers, blocks of {} + 1".format
        found = {arm: shape(self.study.of("", arm)[0].record.subject) for arm in self.study.arms}
        return {arm: said(*its) for arm, its in found.items() if its != usual}

    def layers(self) -> Iterator[Layers]:
        """Pairs of each arm that has a pair mixer, before and after training."""
        for arm in self.study.arms:
            for when in ("start", "end"):
                seeds = [getattr(trained.diagnostics, when) for trained in self.study.of("", arm)]
                if all(seeds):
                    values = [[(b.sine["0.5"], b.narrow_share, b.mean_gate) for b in blocks] for blocks in seeds]
                    yield Layers(arm, when, *np.mean(values, axis=0).T)

    def contrasts(self) -> Table:
        """The contrasts that the page shows, with the published ratio where there is one."""
        shown = [c for c in self.comparisons if c["planned"] or c["set"] == "valid"]
        published = any(PUBLISHED_COLUMN.value(c) for c in shown)
        return Table.of([*CONTRASTS, PUBLISHED_COLUMN] if published else CONTRASTS, shown)

    def csv(self) -> str:
        """tables.csv: a line an arm."""
        return Table.of(COLUMNS, self.rows).pick(*CSV).csv()

    def page(self, figure_names: Sequence[str], template: str = "language.md") -> str:
        """tables.md, by a template that is or extends language.md."""
        record = self.trained[0].record
        data, training = record.subject.data, record.subject.settings["training"]
        seen = record.course.updates * training["batch"] * training.get("accumulation", 1)
        return render(
            template,
            study=self.study,
            report=self,
            data=data,
            model=record.subject.settings["model"],
            training=training,
            record=record,
            epochs=seen / data["splits"]["train"]["blocks"],
            unigram_perplexity=np.exp(data["unigram_entropy"]),
            arms=Table.of(COLUMNS, [*self.rows, *self._references()]).pick(*PAGE),
            method=ratio_method("perplexity", "perplexities"),
            expected=expected_table(self.study),
            contrasts=self.contrasts(),
            layers=Table.of(LAYERS, self.layers()),
            figures=figure_names,
        )

    def text(self) -> str:
        """The page itself: it is short."""
        return self.page([])

    def figure(self, name: str) -> Figure | None:
        """One of `geomix.report.names.LANGUAGE_FIGURES`; None where there is nothing to show."""
        if name == "perplexity":
            return plots.perplexities(self.study, published=self.comparable)
        if name == "training":
            return plots.curves(self, self._curves())
        return plots.pairs(self)

    def _curves(self) -> list[plots.Curve]:
        entropy = self.trained[0].record.subject.data["unigram_entropy"]
        loss = plots.Curve(
            "training loss of a batch, nats", "loss", "step", "update", level=("unigram entropy", entropy)
        )
        # one epoch is a row of points that the table has
        epochs = any(len(trained.lines("epoch")) > 1 for trained in self.trained)
        return [loss, plots.Curve("validation perplexity", "dev_perplexity")] if epochs else [loss]
