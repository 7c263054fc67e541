"""Tables and figures of a run, from its scores, records and comparisons alone: no torch, no training.

What the package exports is loaded when it is asked for: `geomix.report.names`, which parsing the workflow reads, needs neither
numpy nor scipy.
"""

import importlib

_HOMES = {
    "build_report": "build",
    "figure_files": "names",
    "figure_names": "names",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
