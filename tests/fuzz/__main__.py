"""`make fuzz`: random damage for some minutes; what goes wrong is printed with the case that shows it.

python -m tests.fuzz [--minutes 10] [--seed N] [--targets audio kaldi ...] [--workers 2]
python -m tests.fuzz --case audio:123:456          one case again, as it was printed
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.fuzz.harness import Case, endless, outcome, search
from tests.fuzz.targets import TARGETS


def main() -> None:
    """Exit status 1 when a fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="number of the first case of each target (default: a random one)")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", help="run this one here")
    arguments = parser.parse_args()
    if arguments.case:
        case = Case.parsed(arguments.case)
        what = outcome(TARGETS[case.target](), case)
        print(what or f"{case}: right")
        sys.exit(what is not None)
    seed = random.SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    print(f"from seed {seed} on: {', '.join(arguments.targets)}", flush=True)
    until = time.monotonic() + 60 * arguments.minutes
    tally = search(arguments.targets, endless(arguments.targets, seed), arguments.workers, until)
    for place, found in tally.found.items():
        print(f"\n== {place}\n{found.what.strip()}\nagain: python -m tests.fuzz --case {found.case}")
    counts = ", ".join(f"{name} {count}" for name, count in tally.cases.items())
    print(f"\n{sum(tally.cases.values()):,} cases ({counts}); {len(tally.found)} faults")
    sys.exit(bool(tally.found))


if __name__ == "__main__":
    main()
