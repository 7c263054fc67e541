"""Kill a study at random points, run on, and compare what it leaves with an undisturbed run.

    python -m tests.faults.harness [--kills 20] [--seed 0] [--workers 2]

prints `kills survived N/N, files identical N/N`. Each study is killed several times: SIGKILL of the training process alone or of Snakemake with
all its children, at a random update, in the middle of writing a checkpoint, and once after the training, in whatever stage it then is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.slurm.project import checkout, environment
from tests.workflow.conftest import Project

CONFIG = ("--configfile", "config/smoke.yaml", "config/faults.yaml")
UPDATES, UPDATES_PER_EPOCH = 72, 6
ARM = "results/faults/own/attention/seed0"
# what must be the same bytes; the record holds times, and the log is compared without its own, TIMES
FILES = (
    "state/*/epoch-*.safetensors",
    f"{ARM}/model.safetensors",
    f"{ARM}/model.yaml",
    f"{ARM}/epochs.json",
    f"{ARM}/averaging.json",
    f"{ARM}/diagnostics.json",
    f"{ARM}/hyp/test/text",
    f"{ARM}/score/test.json",
    f"{ARM}/score/test.tsv",
    "results/faults/parity.json",
    "results/faults/comparisons.json",
    "results/faults/tables.csv",
)
TIMES = ("seconds", "audio_s_per_s", "mfu", "time_left_s", "data_wait")
PATIENCE = 3600  # seconds for any one thing to happen: a deadline only ends what hangs


@dataclass(frozen=True)
class Kill:
    """One SIGKILL: of the "training" process or the whole "tree", once the training has made `update` updates (None: has ended),
    "at once", or in the midst of the next "save"; `delay` seconds later still."""

    victim: str
    moment: str
    update: int | None
    delay: float


@dataclass
class Outcome:
    """What one study went through: kills made and of them during a save, updates done twice after each, and files that differ."""

    kills: int = 0
    during_save: int = 0
    repeated: list[int] = field(default_factory=list)
    files: int = 0
    different: list[str] = field(default_factory=list)


def kill_plan(seed: int, kills: int) -> list[Kill]:
    """`kills` kills of one study, the last one after its training."""
    draw = random.Random(seed)
    plan = []
    for update in sorted(draw.sample(range(1, UPDATES - UPDATES_PER_EPOCH), kills - 1)):
        moment = draw.choice(("at once", "save"))
        # a checkpoint of this size is written in a few milliseconds
        plan.append(
            Kill(
                draw.choice(("training", "tree")), moment, update, draw.uniform(0, 0.004 if moment == "save" else 0.04)
            )
        )
    return [*plan, Kill("tree", "at once", None, draw.uniform(0, 5))]


def undisturbed(folder: Path) -> Project:
    """The study run once without a disturbance."""
    project = study(folder)
    project.snakemake(*CONFIG, "--cores", "1")
    return project


def disturbed(folder: Path, reference: Project, kills: list[Kill]) -> Outcome:
    """The study run in `folder`, killed as planned, run on to its end, and compared with the undisturbed one."""
    project = study(folder, reference.path("data"))
    outcome, marks = Outcome(), []
    for kill in kills:
        with _started(project) as process:
            outcome.during_save += _run_until(project, process, kill)
            # how far the training had come, and where in the output it tells from where it goes on
            marks.append((_updates(project), project.path("snakemake.out").stat().st_size))
            outcome.kills += 1
        if kill.victim == "tree":
            project.snakemake("--unlock", *CONFIG)
    with _started(project) as process:
        _wait("the end of the study", lambda: process.poll() is not None)
        assert process.returncode == 0, _output(project)[-4000:]
    for reached, mark in marks:
        if resumed := re.search(r"going on from .* update ([\d,]+)", _output(project)[mark:]):
            outcome.repeated.append(reached - int(resumed[1].replace(",", "")))
    compare(project, reference, outcome)
    return outcome


def study(folder: Path, *finished: Path) -> Project:
    """A checkout with the overlay of these tests in its config/."""
    project = checkout(folder, *finished)
    project.path("config", "faults.yaml").write_bytes((Path(__file__).parent / "faults.yaml").read_bytes())
    return project


@contextlib.contextmanager
def _started(project: Project) -> Iterator[psutil.Popen]:
    with open(project.path("snakemake.out"), "ab") as out:
        command = ["snakemake", *CONFIG, "--cores", "1"]
        process = psutil.Popen(
            command, cwd=project.folder, env=environment(), stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        _kill(process, *_children(process))


def _run_until(project: Project, process: psutil.Popen, kill: Kill) -> bool:
    """Wait for the kill's moment, kill, and say whether that broke off the writing of a checkpoint."""
    broken_off = _half_written(project)  # by earlier kills

    def due() -> bool:
        assert process.poll() is None, f"the study ended before {kill}: {_output(project)[-4000:]}"
        if kill.update is None:
            return project.path(ARM, "record.json").exists()
        return _updates(project) >= kill.update and _training(process) is not None

    _wait(str(kill), due)
    if kill.moment == "save":
        _wait("a save", lambda: _half_written(project) - broken_off, pause=0)
    time.sleep(kill.delay)
    if kill.victim == "tree":
        _kill(process, *_children(process))
    else:
        _kill(_training(process))
        _wait("the end of snakemake", lambda: process.poll() is not None)
    return bool(_half_written(project) - broken_off)


def _wait(what: str, condition: Callable[[], object], pause: float = 0.005) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(pause)


def _output(project: Project) -> str:
    return project.path("snakemake.out").read_text(errors="replace")


def _updates(project: Project) -> int:
    """Updates that the log in the state folder tells of."""
    steps = [re.findall(r'"update": (\d+)', path.read_text()) for path in project.folder.glob("state/**/log.jsonl")]
    return int(steps[0][-1]) if steps and steps[0] else 0


def _half_written(project: Project) -> set[Path]:
    return set(project.folder.glob("state/**/.last.ckpt.*.tmp"))


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _training(process: psutil.Process) -> psutil.Process | None:
    """The process that trains, among the children of a running Snakemake."""
    for child in _children(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(part.endswith(".train.py") for part in child.cmdline()):
                return child
    return None


def _kill(*processes: psutil.Process | None) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
            process.kill()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
            process.wait(PATIENCE)


def compare(project: Project, reference: Project, outcome: Outcome) -> None:
    for pattern in FILES:
        paths = sorted(path.relative_to(reference.folder) for path in reference.folder.glob(pattern))
        assert paths, f"the undisturbed study has no {pattern}"
        for path in paths:
            outcome.files += 1
            if not project.path(path).is_file() or project.path(path).read_bytes() != reference.path(path).read_bytes():
                outcome.different.append(str(path))
    # and nothing half written stays
    outcome.different += [str(path) for path in project.folder.glob("state/**/.*.tmp")]
    outcome.files += 1
    if _history(project) != _history(reference):
        outcome.different.append(f"{ARM}/log.jsonl")


def _history(project: Project) -> list[dict]:
    """The training's log without what depends on the clock."""
    lines = project.path(ARM, "log.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def run(folder: Path, kills: int, seed: int = 0, workers: int = 2, kills_a_study: int = 5) -> Outcome:
    """`kills` kills spread over studies of at most `kills_a_study`, `workers` of them side by side; what they went through together."""
    reference = undisturbed(folder / "undisturbed")
    shares = [min(kills_a_study, kills - done) for done in range(0, kills, kills_a_study)]
    with ThreadPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(disturbed, folder / f"study{number}", reference, kill_plan(seed + number, share))
            for number, share in enumerate(shares)
        ]
        total = Outcome()
        for job in jobs:
            outcome = job.result()
            for name in ("kills", "during_save", "repeated", "files", "different"):
                setattr(total, name, getattr(total, name) + getattr(outcome, name))
    return total


def main() -> None:
    """Print the figure; exit status 1 when a file differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="studies side by side")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="geomix-faults-") as folder:
        total = run(Path(folder), arguments.kills, arguments.seed, arguments.workers)
    print(
        f"{total.during_save} kills broke off a save; at most {max(total.repeated)} updates of {UPDATES} were done twice after a kill"
    )
    for path in total.different:
        print(f"differs: {path}")
    print(
        f"kills survived {total.kills}/{arguments.kills}, files identical {total.files - len(total.different)}/{total.files}"
    )
    sys.exit(bool(total.different) or total.kills < arguments.kills)


if __name__ == "__main__":
    main()
