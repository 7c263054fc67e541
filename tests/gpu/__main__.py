"""`PYTHONPATH=src python3 -m tests.gpu`: all parts, a table on the terminal and in results/bench/<device>/; status 1 when one fails."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    """Run the parts; returns the exit status: 0, or 1 when a check failed or there is no such device."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: what of it runs without a GPU")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench", help="folder of the devices' folders")
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute on a processor")
    parser.add_argument("--parts", nargs="+", help="some of the parts, by name")
    arguments = parser.parse_args(argv)
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print(
            "geomix: this machine shows no CUDA device: run this on one, or --device cpu for what needs none",
            file=sys.stderr,
        )
        return 1
    from tests.gpu import report, speed, training, values

    quick = arguments.quick
    device = torch.device("cuda", torch.cuda.current_device()) if arguments.device == "cuda" else torch.device("cpu")
    parts = {
        "product": functools.partial(values.products, quick=quick),
        "mixer": values.mixers,
        "strides": values.strides_and_compilation,
        "others": values.others,
        "wide": values.wide_strides,
        "step": functools.partial(training.steps, quick=quick),
        "training": functools.partial(training.learns, quick=quick),
        "speed": functools.partial(speed.measured, quick=quick),
    }
    for name in arguments.parts or ():
        if name not in parts:
            parser.error(f"--parts {name}: choose from {', '.join(parts)}")
    run = report.Run(device)
    for name in arguments.parts or parts:
        run.part(name, parts[name])
        folder = report.write(run, arguments.out)  # after each part: a time limit leaves what is done
    print(f"wrote {folder}/gpu_test.json and gpu_test.md: {len(run.failed)} of {len(run.rows)} rows failed")
    for row in run.failed:
        print(report.line(row), row.note)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
