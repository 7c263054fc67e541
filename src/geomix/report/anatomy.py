"""The anatomy of a run: what each change of the pair mixer does, the best pair mixer beside its rivals, what learned signs became."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geomix.errors import UserError
from geomix.files import read_objects, write_text
from geomix.report.columns import Column, Table, fixed
from geomix.report.figures import COLOURS, draw, new_figure
from geomix.report.names import ANATOMY, DIAL
from geomix.report.pages import render
from geomix.report.text import interval_text, named_verdict
from geomix.speech.comparison import rate_form
from geomix.speech.scoring import Score, read_score
from geomix.statistics import TInterval, t_interval
from geomix.statistics.verdicts import side_of_dials
from geomix.training.results import WER, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ("rank", "ff_dim", "gated", "unmatched", "seeds")
"""Keys of an arm that match its size or say how the study treats it: no change of the mixer."""
AROUND = ("conv_kernel", "feed_forward")
"""Keys of an arm that change the model around the mixer."""
SIDE = 0.5


@dataclass(frozen=True)
class Contrast:
    """WER of arm a less that of arm b in points, with the t-interval and the verdict of the comparison."""

    a: str
    b: str
    difference: float
    low: float | None
    high: float | None
    verdict: str

    def __str__(self) -> str:
        return f"{round(self.difference, 2) + 0.0:+.2f} {interval_text(self.low, self.high)}"


@dataclass(frozen=True)
class Place:
    """A track and an evaluation set."""

    track: str
    set: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.track, self.set)))


@dataclass(frozen=True)
class Change:
    """A pair mixer: `done` to the plain one, and its contrasts with the same model without a mixer and with the plain one."""

    arm: str
    done: str
    wer: float
    deficit: Contrast | None
    effect: Contrast | None


@dataclass(frozen=True)
class Twins:
    """The wedge and the symmetric arm of one change; `moved`, the change of their difference against the plain ones'."""

    done: str
    contrast: Contrast
    moved: TInterval | None


@dataclass(frozen=True)
class DialBlock:
    """Learned signs of a block, or of all: the mean they began at; over seeds, the mean at the end, its deviation (None: one
    seed), quantiles and shares of coordinates beyond half way."""

    arm: str
    block: str
    began: float
    mean: float
    deviation: float | None
    quantiles: tuple[float, float, float]
    planes: float
    symmetric: float


CHANGES = (
    Column("arm", lambda c: c.arm),
    Column("change", lambda c: c.done),
    Column("WER %", lambda c: c.wer, show=fixed(2)),
    Column("less no mixer", lambda c: c.deficit, show=lambda c: str(c) if c else "-"),
    Column("verdict", lambda c: c.deficit and named_verdict(c.deficit.verdict, c.deficit.a, c.deficit.b) or "-"),
    Column("less the plain pair mixer", lambda c: c.effect, show=lambda c: str(c) if c else "-"),
    Column("its verdict", lambda c: c.effect and named_verdict(c.effect.verdict, c.effect.a, c.effect.b) or "-"),
)
TWINS = (
    Column("change", lambda t: t.done),
    Column("wedge - symmetric", lambda t: f"{t.contrast.a} - {t.contrast.b}"),
    Column("points", lambda t: str(t.contrast)),
    Column("verdict", lambda t: named_verdict(t.contrast.verdict, t.contrast.a, t.contrast.b)),
    Column("what the change does to it", lambda t: _moved(t.moved)),
)
BEST = (
    Column("contrast", lambda c: f"{c.a} - {c.b}"),
    Column("points", str),
    Column("verdict", lambda c: named_verdict(c.verdict, c.a, c.b)),
)
DIALS = (
    Column("arm", lambda d: d.arm),
    Column("block", lambda d: d.block),
    Column("began at", lambda d: d.began, show=fixed(2, "+")),
    Column("ends at", lambda d: f"{d.mean:+.3f}" + ("" if d.deviation is None else f" ± {d.deviation:.3f}")),
    Column("5 / 50 / 95 % of the coordinates", lambda d: " / ".join(f"{q:+.2f}" for q in d.quantiles)),
    Column(f"below -{SIDE:g}, %", lambda d: 100 * d.planes, show=fixed(0)),
    Column(f"above +{SIDE:g}, %", lambda d: 100 * d.symmetric, show=fixed(0)),
)


def _moved(t: TInterval | None) -> str:
    return "-" if t is None else f"{t.estimate:+.2f} {interval_text(t.low, t.high)}"


def differences(arm: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What an arm's definition says otherwise than another's, its size aside."""
    keys = [key for key in {**other, **arm} if key not in SIZES]
    return {key: arm.get(key) for key in keys if arm.get(key) != other.get(key)}


@dataclass(frozen=True)
class Anatomy:
    """A finished speech run by the roles of its arms, and the entries of its comparisons.json."""

    study: Study
    entries: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, folder: str | os.PathLike) -> Anatomy:
        """Of a run folder; `UserError` for a language study, and for one without a pair mixer and an arm without a mixer."""
        study = Study.read(folder)
        if study.metric != WER:
            raise UserError(f"{folder}: is a language study, the anatomy is of word error rates: name a speech run")
        keys = ("a", "b", "set", "track", "difference", "t_low", "t_high", "verdict")
        found = cls(study, read_objects(study.folder / "comparisons.json", *keys))
        if not found.pairs or not found.without:
            raise UserError(
                f"{folder}: has no {'pair mixer' if not found.pairs else 'arm without a mixer'} among its arms, to compare "
                "the others with: run a configuration such as config/anatomy.yaml"
            )
        return found

    def _of(self, *mixers: str) -> list[str]:
        return [arm for arm in self.study.arms if self.study.settings["arms"][arm].get("mixer") in mixers]

    def definition(self, arm: str) -> Mapping[str, Any]:
        """What the configuration says of an arm."""
        return self.study.settings["arms"][arm]

    @cached_property
    def pairs(self) -> list[str]:
        """Arms with a pair mixer."""
        return self._of("pair")

    @cached_property
    def without(self) -> list[str]:
        """Arms without a mixer."""
        return self._of("none")

    @cached_property
    def rivals(self) -> list[str]:
        """What the best pair mixer is held against: attention, no mixer, then any other arm."""
        first = [*self._of("attention"), *self.without]
        return [*first, *(arm for arm in self.study.arms if arm not in (*first, *self.pairs))]

    @cached_property
    def plain(self) -> str:
        """The pair mixer from which the others differ least, a wedge where there is one."""
        apart = lambda arm: sum(len(differences(self.definition(o), self.definition(arm))) for o in self.pairs)
        return min(self.pairs, key=lambda arm: (self.definition(arm).get("kind", "wedge") != "wedge", apart(arm)))

    def done(self, arm: str) -> str:
        """In words, what an arm changes of the plain pair mixer."""
        found = differences(self.definition(arm), self.definition(self.plain))
        return ", ".join(f"{key} {value}" for key, value in found.items()) or "none"

    @property
    def places(self) -> list[Place]:
        """Tracks and evaluation sets, those on which epochs were chosen left out."""
        return [Place(track, name) for track in self.study.tracks for name in self.study.test_sets]

    def contrast(self, place: Place, a: str, b: str) -> Contrast | None:
        """Arm a less arm b; None for an arm and itself."""
        for e in self.entries:
            if (e["track"], e["set"]) != (place.track, place.set) or {e["a"], e["b"]} != {a, b}:
                continue
            if e["a"] == a:
                return Contrast(a, b, e["difference"], e["t_low"], e["t_high"], e["verdict"])
            low, high = (None if e[key] is None else -e[key] for key in ("t_high", "t_low"))
            swapped = {"a": "b", "b": "a"}
            verdict = " ".join([swapped.get(word, word) for word in e["verdict"].split(" ", 1)])
            return Contrast(a, b, -e["difference"], low, high, verdict)
        return None

    def scores(self, place: Place, arm: str) -> dict[int, Score]:
        """Scores of an arm's seeds."""
        return {t.seed: read_score(t.score_path(place.set)) for t in self.study.of(place.track, arm)}

    def changes(self, place: Place) -> Iterator[Change]:
        """Each pair mixer, the plain one first."""
        around = lambda arm: [self.definition(arm).get(key) for key in AROUND]
        for arm in [self.plain, *(each for each in self.pairs if each != self.plain)]:
            bare = next((other for other in self.without if around(other) == around(arm)), self.without[0])
            words = [score.words for score in self.scores(place, arm).values()]
            wer = float(np.mean([each.rate for each in words]))
            yield Change(
                arm, self.done(arm), wer, self.contrast(place, arm, bare), self.contrast(place, arm, self.plain)
            )

    def twins(self, place: Place) -> Iterator[Twins]:
        """Arms that differ in the geometry alone: kind wedge and symmetric, or learned signs that start at -1 and +1."""
        found = [(a, b) for a, b in itertools.permutations(self.pairs, 2) if self._are_twins(a, b)]
        found.sort(key=lambda each: each[0] != self.plain)
        plain = found[0] if found and found[0][0] == self.plain else None
        for a, b in found:
            if (contrast := self.contrast(place, a, b)) is None:
                continue
            moved = None
            if plain and (a, b) != plain:
                form = dict(zip((a, b, *plain), (1.0, -1.0, -1.0, 1.0), strict=True))
                moved = rate_form(form, 0.0, {arm: self.scores(place, arm) for arm in form})
            yield Twins(self.done(a), contrast, moved)

    def _are_twins(self, a: str, b: str) -> bool:
        one, other = self.definition(a), self.definition(b)
        apart = {key: (one.get(key), value) for key, value in differences(other, one).items()}
        return apart in ({"kind": ("wedge", "symmetric")}, {"signs_start": (-1.0, 1.0)})

    def best(self, track: str) -> str | None:
        """The pair mixer of the lowest dev CER, mean over seeds of each training's best epoch; None where logs lack it."""
        means = {arm: self._dev_cer(track, arm) for arm in self.pairs}
        return None if None in means.values() else min(means, key=means.get)

    def _dev_cer(self, track: str, arm: str) -> float | None:
        trainings = [t.lines("epoch") for t in self.study.of(track, arm)]
        lowest = [min((line["dev_cer"] for line in lines if "dev_cer" in line), default=None) for lines in trainings]
        return None if None in lowest else float(np.mean(lowest))

    def beside(self, place: Place) -> list[Contrast]:
        """The best pair mixer against attention, no mixer and the rivals."""
        best = self.best(place.track)
        found = (self.contrast(place, best, arm) for arm in self.rivals) if best else ()
        return [contrast for contrast in found if contrast]

    def verdicts(self, place: Place) -> Counter[str]:
        """How many pair mixers are `better` or `worse` than no mixer, are `equal` to it, or whose contrast says neither (`open`)."""
        counts: Counter[str] = Counter()
        for change in self.changes(place):
            said = change.deficit.verdict if change.deficit else ""
            words = {"a better": "better", "b better": "worse", "equal": "equal"}
            counts[next((word for start, word in words.items() if said.startswith(start)), "open")] += 1
        return counts

    @cached_property
    def signs(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Arm with learned signs -> those at the start and at the end, (seeds, blocks, coordinates)."""
        found = {}
        for arm in self.pairs:
            seeds = [t.diagnostics for t in self.study.of(self.study.tracks[0], arm)]
            if seeds and all(block.signs for seed in seeds for block in seed.end) and all(seed.end for seed in seeds):
                found[arm] = tuple(
                    np.array([[b.signs for b in getattr(seed, when)] for seed in seeds]) for when in ("start", "end")
                )
        return found

    def dials(self) -> Iterator[DialBlock]:
        """Learned signs, block by block and in all."""
        for arm, (start, end) in self.signs.items():
            for block in [*range(end.shape[1]), None]:
                one = slice(None) if block is None else slice(block, block + 1)
                means, values = end[:, one].mean((1, 2)), end[:, one]
                yield DialBlock(
                    arm,
                    "all" if block is None else str(block + 1),
                    float(start[:, one].mean()),
                    float(means.mean()),
                    float(means.std(ddof=1)) if len(means) > 1 else None,
                    tuple(np.quantile(values, (0.05, 0.5, 0.95)).tolist()),
                    float((values < -SIDE).mean()),
                    float((values > SIDE).mean()),
                )

    @property
    def dial_side(self) -> str:
        """Where learned signs end, whatever they began at (`statistics.verdicts.side_of_dials`)."""
        ends = []
        for start, end in self.signs.values():
            means = end.mean((1, 2))
            t = t_interval(means.mean(), means.var(ddof=1) / len(means), len(means) - 1) if len(means) > 1 else None
            ends.append((float(start.mean()), t))
        return side_of_dials(ends)

    def page(self) -> str:
        """anatomy.md."""
        return render(
            "anatomy.md",
            anatomy=self,
            study=self.study,
            changes={place: Table.of(CHANGES, self.changes(place)) for place in self.places},
            twins={place: Table.of(TWINS, self.twins(place)) for place in self.places},
            beside={place: Table.of(BEST, self.beside(place)) for place in self.places},
            dials=Table.of(DIALS, self.dials()),
            figure=DIAL,
        )

    def figure(self) -> Figure:
        """Signs of each block after training, in rising order (the coordinates of two trainings have nothing in common)."""
        figure, axes = new_figure(1, len(self.signs), 2.6 * len(self.signs) + 0.8, 2.8, sharey=True)
        for axis, (arm, (start, end)) in zip(axes[0], self.signs.items(), strict=True):
            for block in range(end.shape[1]):
                for number, values in enumerate(np.sort(end[:, block], axis=-1)):
                    label = f"block {block + 1}" if not number else None
                    axis.plot(values, color=COLOURS[block % len(COLOURS)], lw=1, label=label)
            axis.axhline(start.mean(), color="#808080", lw=1, ls=":")
            axis.set_title(arm)
            axis.set_xlabel("coordinate, sorted")
        axes[0][0].set_ylabel("sign (-1 wedge, +1 symmetric)")
        axes[0][-1].legend(frameon=False, fontsize=7)
        return figure


def write_anatomy(folder: str | os.PathLike, out: str | os.PathLike | None = None) -> Path:
    """Write anatomy.md of a finished run, and the figure of its dials where it has some, into its folder or `out`; returns the page."""
    anatomy = Anatomy.read(folder)
    out = Path(out or folder)
    text = anatomy.page()
    if anatomy.signs:
        draw(DIAL, out, anatomy.figure)
    write_text(out / f"{ANATOMY}.md", text)
    return out / f"{ANATOMY}.md"
