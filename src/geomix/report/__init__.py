"""Comparisons, tables and figures of a run, from its scores and records alone: no torch, no training."""

from geomix.report.build import build_report
from geomix.report.comparisons import compare_study, compare_systems
from geomix.report.parity import measure_parity, pass_gate
from geomix.report.study import Study

__all__ = ["Study", "build_report", "compare_study", "compare_systems", "measure_parity", "pass_gate"]
