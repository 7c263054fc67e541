"""`geomix bench verdicts`: how often each verdict is right, by simulation: coverage, size and power."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from geomix.benchmarks.options import Common, option
from geomix.benchmarks.output import write_csv
from geomix.statistics.bootstrap import paired_bootstrap
from geomix.statistics.intervals import TInterval, crossed_t_interval, interaction_mean_square, t_interval
from geomix.statistics.verdicts import (
    A_BETTER,
    B_BETTER,
    EQUAL,
    Components,
    smallest_difference,
    smallest_margin,
    verdict_of,
)

COLUMNS = (
    "seed_effect", "speakers", "seeds", "coverage", "percentile_coverage", "size", "smallest_difference", "power",
    "smallest_margin", "equal", "wrongly_equal",
)  # fmt: skip
POOLING_COLUMNS = ("arms", "speakers", "seeds", "variances", "coverage", "power")


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench verdicts`; it writes verdicts.csv and pooling.csv."""

    speakers: tuple[int, ...] = option((10, 20, 40), "numbers of speakers")
    seeds: tuple[int, ...] = option((1, 3, 5), "numbers of seeds of each arm")
    runs: int = option(4000, "simulated studies a case")


@dataclass(frozen=True)
class Truth:
    """Two arms as they are in truth: speakers, seeds and standard deviations in points of WER.

    `seed` of one arm between trainings, `speaker` of the paired difference between speakers, `interaction` of seed by
    speaker. The quick AN4 recipe has about 5.5, 0 and 4 at a WER of 25 %.
    """

    speakers: int
    seeds: int
    seed: float = 0.5
    speaker: float = 2.0
    interaction: float = 2.0

    @property
    def components(self) -> Components:
        """The same as variances."""
        return Components(self.seed**2, self.speaker**2, self.interaction**2)


SEED_EFFECTS = {"small": 0.5, "large": 2.0}
"""Standard deviation between trainings beside 2 points between speakers."""


@dataclass(frozen=True)
class Outcome:
    """Shares of simulated studies: the interval holds the truth; one arm called better; called equal; and what could be seen.

    `percentile` is the share of the percentile bootstrap's intervals that hold the truth, NaN where none was asked for.
    """

    coverage: float
    percentile: float
    better: float
    equal: float
    smallest_difference: float
    smallest_margin: float


def simulate(
    truth: Truth, *, difference: float, margin: float | None = None, runs: int, bootstrapped: int = 0, seed: int = 0
) -> Outcome:
    """Draw `runs` studies of two arms whose rates differ by `difference` points, and judge each.

    The first `bootstrapped` of them get a percentile bootstrap interval of 1,000 resamples too. With one seed an arm no
    verdict about arms is given; `better` is then the share of intervals without zero.
    """
    generator = np.random.default_rng(seed)
    words = np.full(truth.speakers, 100.0)
    covered, held, verdicts = 0, 0, Counter()
    for run in range(runs):
        apart = truth.speaker * generator.standard_normal(truth.speakers) + difference
        arms = [
            50
            + truth.seed * generator.standard_normal((truth.seeds, 1))
            + truth.interaction * generator.standard_normal((truth.seeds, truth.speakers))
            for _ in range(2)
        ]
        t = crossed_t_interval(arms[0] + apart, arms[1], words)
        covered += t.low <= difference <= t.high
        if run < bootstrapped:
            percentile = paired_bootstrap(arms[0] + apart, arms[1], words, resamples=1000, seed=run)
            held += percentile.low <= difference <= percentile.high
        if truth.seeds < 2:
            verdicts[B_BETTER if t.low > 0 or t.high < 0 else ""] += 1
        else:
            verdicts[verdict_of(t, margin=margin, seeds=(truth.seeds,) * 2, speakers=truth.speakers)] += 1
    better = sum(n for name, n in verdicts.items() if name.startswith((A_BETTER, B_BETTER)))
    precision = truth.components.precision(truth.seeds, truth.speakers)
    return Outcome(
        covered / runs,
        held / bootstrapped if bootstrapped else np.nan,
        better / runs,
        verdicts[EQUAL] / runs,
        smallest_difference(*precision),
        smallest_margin(*precision),
    )


def table(options: Options) -> list[dict[str, float | str]]:
    """A row for each seed effect, number of speakers and number of seeds."""
    rows = []
    for effect, speakers, seeds in product(SEED_EFFECTS, options.speakers, options.seeds):
        truth = Truth(speakers, seeds, seed=SEED_EFFECTS[effect])
        none = simulate(truth, difference=0.0, runs=options.runs, bootstrapped=min(options.runs, 1000))
        row = {
            "seed_effect": effect,
            "speakers": speakers,
            "seeds": seeds,
            "coverage": none.coverage,
            "percentile_coverage": none.percentile,
            "size": none.better,
        }
        if seeds > 1:
            least, margin = none.smallest_difference, none.smallest_margin
            row |= {
                "smallest_difference": least,
                "power": simulate(truth, difference=least, runs=options.runs).better,
                "smallest_margin": margin,
                "equal": simulate(truth, difference=0.0, margin=margin, runs=options.runs).equal,
                "wrongly_equal": simulate(truth, difference=margin, margin=margin, runs=options.runs).equal,
            }
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Spread:
    """Standard deviations between trainings of a study's four arms, of which the first two are compared."""

    name: str
    arms: tuple[float, float, float, float]


SPREADS = (
    Spread("equal", (1.0, 1.0, 1.0, 1.0)),
    Spread("four times larger in the compared arms", (1.6, 1.6, 0.8, 0.8)),
    Spread("four times smaller in the compared arms", (0.8, 0.8, 1.6, 1.6)),
)


def pooled_t_interval(arms: Sequence[np.ndarray]) -> TInterval:
    """t-interval of arm 0 minus arm 1 with the seed variances of all arms pooled, all speakers of the same length.

    `arms` are (seeds, speakers) rates. Tried and refused: see `pooling`.
    """
    seeds, speakers = arms[0].shape
    df = len(arms) * (seeds - 1)
    between = 2 * float(np.mean([x.mean(1).var(ddof=1) for x in arms])) / seeds
    shared = 2 * float(np.mean([interaction_mean_square(x) for x in arms])) / (seeds * speakers)
    over_speakers = float((arms[0].mean(0) - arms[1].mean(0)).var(ddof=1)) / speakers
    variance = max(between + over_speakers - shared, between, over_speakers)
    squares = between**2 / df + over_speakers**2 / (speakers - 1) + shared**2 / (df * (speakers - 1))
    return t_interval(arms[0].mean() - arms[1].mean(), variance, variance**2 / squares)


def pooling(options: Options) -> list[dict[str, float | str]]:
    """Coverage, and power at three standard errors, of the interval with each arm's own seed variance and with all pooled."""
    rows = []
    for speakers, spread in product(options.speakers, SPREADS):
        generator, seeds = np.random.default_rng(0), 3
        words = np.full(speakers, 100.0)
        error = np.sqrt(sum(sd**2 for sd in spread.arms[:2]) / seeds + 2 * 1.5**2 / speakers + 2 / (seeds * speakers))
        found = Counter()
        for _ in range(options.runs):
            arms = [
                50
                + sd * generator.standard_normal((seeds, 1))
                + 1.5 * generator.standard_normal(speakers)
                + generator.standard_normal((seeds, speakers))
                for sd in spread.arms
            ]
            for name, t in (("own", crossed_t_interval(*arms[:2], words)), ("pooled", pooled_t_interval(arms))):
                found[name, "coverage"] += t.low <= 0 <= t.high
                found[name, "power"] += t.low + 3 * error > 0
        rows += [
            {"arms": spread.name, "speakers": speakers, "seeds": seeds, "variances": name}
            | {what: found[name, what] / options.runs for what in ("coverage", "power")}
            for name in ("own", "pooled")
        ]
    return rows


def run(options: Options) -> None:
    """Simulate, print and write verdicts.csv and pooling.csv."""
    for name, columns, rows in (
        ("verdicts", COLUMNS, table(options)),
        ("pooling", POOLING_COLUMNS, pooling(options)),
    ):
        for row in rows:
            print(
                ", ".join(
                    f"{key} {f'{value:.3g}' if isinstance(value, float) else value}" for key, value in row.items()
                )
            )
        write_csv(options.out / f"{name}.csv", columns, rows)
        print(f"wrote {options.out}/{name}.csv")
