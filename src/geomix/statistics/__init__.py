"""Intervals and tests for comparisons of trained systems: numpy and scipy only, nothing of ours."""

from geomix.statistics.bootstrap import Difference, Interval, bootstrap_rate, paired_bootstrap
from geomix.statistics.gate import GateVerdict, gate_verdict, range_verdict
from geomix.statistics.intervals import PerplexityRatio, TInterval, crossed_t_interval, t_interval_log_perplexity
from geomix.statistics.mapsswe import Mapsswe, error_segments, mapsswe
from geomix.statistics.multiple import holm
from geomix.statistics.outcome import NO_INTERVAL, TIE, outcome, ratio_method, side_of

__all__ = [
    "NO_INTERVAL", "TIE", "Difference", "GateVerdict", "Interval", "Mapsswe", "PerplexityRatio", "TInterval",
    "bootstrap_rate", "crossed_t_interval", "error_segments", "gate_verdict", "holm", "mapsswe", "outcome",
    "paired_bootstrap", "range_verdict", "ratio_method", "side_of", "t_interval_log_perplexity",
]  # fmt: skip
