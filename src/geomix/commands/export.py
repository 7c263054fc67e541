"""`geomix export`: a trained model in a folder of its own, for use without a run, and as an ONNX graph for use without geomix."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a trained model")
    parser.add_argument(
        "out", type=Path, metavar="FOLDER", help="gets the model's files, features.json and README.md, its model card"
    )
    parser.add_argument(
        "--onnx", action="store_true", help="write model.onnx, too, and compare it (requirements-export.txt)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Export, and say what was written."""
    from geomix.speech.exported import export_model

    difference = export_model(arguments.model, arguments.out, onnx=arguments.onnx)
    print(f"wrote {arguments.out}: {', '.join(sorted(path.name for path in arguments.out.iterdir()))}")
    if difference is not None:
        print(f"model.onnx: log-probabilities differ by {difference:.1e} at most from the model's")
