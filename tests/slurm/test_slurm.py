"""`snakemake --profile slurm` on a real Slurm of this machine: the study from nothing, and what interrupts it.

Each scenario is a function that plays it in a checkout of its own; all of them run side by side on one cluster, and each is one test.
The four that interrupt a training end with the same training, so its weights must be the same bytes whatever happened to it.
What happens to a training meets it where it is held (`Stage.held`), on a machine of any speed; limits only end what hangs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from geomix.files import read_json
from geomix.settings import load
from geomix.studies.plan import make_plan
from tests.conftest import ROOT
from tests.slurm.cluster import Cluster, missing
from tests.slurm.project import checkout, environment
from tests.workflow.conftest import Project

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

RECORD = "results/long/own/attention/seed0/record.json"
TRAIN = "rule_train_wildcards_long_own_attention_0"
PATIENCE = 3600
"""Seconds after which what is waited for counts as never coming."""

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"}


class Controller:
    """One `snakemake --profile slurm` at the root of a checkout; what it prints is in `text`."""

    def __init__(self, stage: Stage, project: Project, *arguments: str):
        self._out = project.path(f"controller{len(list(project.folder.glob('controller*.out')))}.out")
        with open(self._out, "wb") as out:
            self.process = subprocess.Popen(
                # a poll a second instead of ten, so that a test lasts minutes
                ["snakemake", "--profile", "slurm", "--slurm-init-seconds-before-status-checks", "1", *arguments],
                cwd=project.folder,
                env=stage.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        stage.controllers.append(self.process)
        assert not stage.over.is_set(), "the tests are over"

    @property
    def text(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def run_id(self) -> str:
        return re.search(r"SLURM run ID: (\S+)", self.text)[1]

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"snakemake still runs after {PATIENCE} s: {self.text[-3000:]}") from None


@dataclass
class Stage:
    """What a scenario plays on: the cluster, a folder for checkouts, and prepared data to start from."""

    cluster: Cluster
    folder: Path
    environment: dict[str, str]
    prepared: Callable[[], Path]
    controllers: list[subprocess.Popen] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def project(self, name: str, *overlays: str) -> Project:
        """A checkout with the smoke corpus prepared and the tests' overlays in its config/."""
        project = checkout(self.folder / name, self.prepared())
        for overlay in overlays:
            project.path("config", overlay).write_bytes((Path(__file__).parent / overlay).read_bytes())
        return project

    def long(self, project: Project) -> Controller:
        """Start the long training alone."""
        return Controller(self, project, "--configfile", "config/smoke.yaml", "config/long.yaml", "--", RECORD)

    def until(self, what: str, condition: Callable[[], object]):
        """Wait until `condition()` is true and return it."""
        end = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < end and not self.over.is_set(), f"waited in vain for {what}"
            time.sleep(0.2)
        return value

    @contextlib.contextmanager
    def held(self, project: Project, updates: int) -> Iterator[int]:
        """The process of the long training, stopped once it has made so many updates, and let go behind the block."""
        self.until(f"{updates} updates", lambda: reached(project) >= updates)
        (lock,) = project.folder.glob("state/*/lock")
        process = int(re.match(r"process (\d+)", lock.read_text())[1])
        os.kill(process, signal.SIGSTOP)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def running(self, controller: Controller) -> dict[str, str]:
        """The Slurm job that runs the training for a controller, waited for."""

        def job():
            jobs = self.cluster.jobs(controller.run_id)
            return next((job for job in jobs if job["JobState"] == "RUNNING" and job["Comment"] == TRAIN), None)

        return self.until("a running job", job)

    def end(self) -> None:
        """Stop the scenarios that still play: their controllers are killed, and what they wait for never comes."""
        self.over.set()
        for controller in self.controllers:
            if controller.poll() is None:
                controller.kill()
                controller.wait()


def reached(project: Project) -> int:
    """Updates that the long training's log in the state folder tells of."""
    steps = [re.findall(r'"update": (\d+)', path.read_text()) for path in project.folder.glob("state/*/log.jsonl")]
    return int(steps[0][-1]) if steps and steps[0] else 0


def told_to_end(process: int) -> bool:
    """Whether a SIGTERM waits for a stopped process, or it has gone on and ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (signal.SIGTERM - 1) & 1 for mask in pending)


def attempts(project: Project) -> list[tuple[int, int | None]]:
    """(update gone on from, update stopped and saved at) of each Slurm job of the long training; None: it said nothing."""
    found = []
    logs = project.folder.glob("logs/slurm/rule_train/*_own_attention_0/*.log")
    for path in sorted(logs, key=lambda path: int(path.stem)):
        text = path.read_text(errors="replace")
        begun = re.search(r"going on from .* update ([\d,]+)", text)
        stopped = re.search(r"stopped by SIGTERM .* after update ([\d,]+); the state is saved", text)
        number = lambda match: int(match[1].replace(",", "")) if match else None
        found.append((number(begun) or 0, number(stopped)))
    return found


def weights(project: Project) -> dict[str, bytes]:
    """The long training's kept epochs, checked to be a finished run of 120 epochs of 6 updates."""
    record = read_json(project.path(RECORD))
    assert (record["epochs"], record["updates"]) == (120, 720)
    return {path.name: path.read_bytes() for path in project.folder.glob("state/*/epoch-*.safetensors")}


# -- scenarios


def smoke(stage: Stage) -> None:
    """From nothing to the table: every job but the local ones is a Slurm job, trainings with one A100 and the others with none."""
    project = checkout(stage.folder / "smoke")
    controller = Controller(stage, project, "--configfile", "config/smoke.yaml")
    assert controller.wait() == 0, controller.text[-3000:]
    assert project.path("results/smoke/tables.md").is_file()
    jobs = stage.cluster.jobs(controller.run_id)
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    rules = Counter(re.match(r"rule_([a-z]+)", job["Comment"])[1] for job in jobs)
    assert {"features": 4, "train": 4, "decode": 4}.items() <= rules.items()
    for job in jobs:
        if job["Comment"].startswith("rule_train"):
            assert job["TresPerJob"] == "gres:gpu:a100:1" and job["Partition"] == "gpu"
        else:
            assert "TresPerJob" not in job and job["Partition"] == "cpu"
        assert list(project.folder.glob(f"logs/slurm/**/{job['JobId']}.log"))
    # what it took lies within what the plan states beforehand
    stated = make_plan(load("config/smoke.yaml", base=ROOT / "config.yaml"), project.folder)
    for folder, kinds in (("state", ("checkpoints", "state folders")), ("data/smoke/*/features", ("features",))):
        size = sum(
            path.stat().st_size
            for path in project.folder.glob(f"{folder}/**/*")
            if path.suffix in (".ckpt", ".safetensors", ".f32")
        )
        bound = sum(stored.bytes for stored in stated.storage if stored.kind.startswith(kinds))
        assert 0 < size < 1.15 * bound  # a model of 64,000 parameters: buffers and headers count


def time_limit(stage: Stage) -> dict[str, bytes]:
    """A training longer than its time limit is saved before it, submitted again, and goes on."""
    project = stage.project("time_limit", "long.yaml")
    controller = stage.long(project)
    with stage.held(project, 30) as process:
        job = stage.running(controller)
        hours, minutes, _ = map(int, job["RunTime"].split(":"))
        # SIGTERM comes five minutes before the limit, hence now or in a minute
        stage.cluster.run("scontrol", "update", f"JobId={job['JobId']}", f"TimeLimit={60 * hours + minutes + 6}")
        stage.until("SIGTERM", lambda: told_to_end(process))
    assert controller.wait() == 0, controller.text[-3000:]
    (begun, stopped), *others = attempts(project)
    assert begun == 0 and stopped >= 30 and others == [(stopped, None)]  # nothing is done twice
    memory = [
        int(job["MinMemoryNode"].rstrip("M"))
        for job in stage.cluster.jobs(controller.run_id)
        if job["Comment"] == TRAIN
    ]
    assert memory == [min(24000 * (i + 1), 96000) for i in range(len(memory))]
    return weights(project)


def cancelled(stage: Stage) -> dict[str, bytes]:
    """scancel: the training saves and is submitted again. Then Ctrl-C of the controller: its job ends, saved, and the next run goes on."""
    project = stage.project("cancelled", "long.yaml")
    controller = stage.long(project)
    with stage.held(project, 30):
        first = stage.running(controller)
        stage.cluster.run("scancel", first["JobId"])
    second = stage.until(
        "another job",
        lambda: next((job for job in [stage.running(controller)] if job["JobId"] != first["JobId"]), None),
    )
    saved = attempts(project)[0][1]
    with stage.held(project, saved + 30):
        controller.process.send_signal(signal.SIGINT)
        assert controller.wait() != 0
    states = {job["JobId"]: job["JobState"] for job in stage.cluster.jobs(controller.run_id)}
    assert states[first["JobId"]] == "CANCELLED"
    stage.until(
        "the end of its jobs", lambda: all(job["JobState"] in ENDED for job in stage.cluster.jobs(controller.run_id))
    )
    assert states.keys() >= {second["JobId"]}
    again = stage.long(project)
    assert again.wait() == 0, again.text[-3000:]
    tried = attempts(project)
    assert len(tried) == 3 and all(stopped for _, stopped in tried[:2])
    assert [begun for begun, _ in tried] == [0, tried[0][1], tried[1][1]]
    return weights(project)


def requeued(stage: Stage) -> dict[str, bytes]:
    """A job that Slurm takes back (preemption, a lost node) starts again and goes on. SIGTERM of the controller: the job that runs is waited for."""
    project = stage.project("requeued", "long.yaml")
    controller = stage.long(project)
    with stage.held(project, 30):
        job = stage.running(controller)["JobId"]
        stage.cluster.run("scontrol", "requeue", job)

    def state() -> str:
        return next(entry["JobState"] for entry in stage.cluster.jobs(controller.run_id) if entry["JobId"] == job)

    stage.until("the job back in the queue", lambda: state() == "PENDING")
    stage.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm would hold it back for two minutes
    stage.until("the job running again", lambda: state() in ("RUNNING", "COMPLETED"))
    controller.process.terminate()
    controller.wait()
    jobs = [entry for entry in stage.cluster.jobs(controller.run_id) if entry["Comment"] == TRAIN]
    assert [(entry["JobId"], entry["Restarts"], entry["JobState"]) for entry in jobs] == [(job, "1", "COMPLETED")]
    assert read_json(project.path(RECORD))["attempts"] == 2
    again = stage.long(project)
    assert again.wait() == 0 and "Nothing to be done" in again.text, again.text[-3000:]
    return weights(project)


def abandoned(stage: Stage) -> dict[str, bytes]:
    """A second controller is refused; SIGKILL of the first leaves its job; the next one's job finds the state locked, and nothing is trained twice."""
    project = stage.project("abandoned", "long.yaml")
    controller = stage.long(project)
    with stage.held(project, 10):
        second = stage.long(project)
        assert second.wait() != 0 and "--unlock" in second.text
        job = stage.running(controller)
        controller.process.kill()
        controller.process.wait()
        refused = stage.long(project)
        assert refused.wait() != 0 and "--unlock" in refused.text
        project.snakemake("--unlock", "--configfile", "config/smoke.yaml", "config/long.yaml")

        def state() -> str:
            jobs = stage.cluster.jobs(controller.run_id)
            return next(entry["JobState"] for entry in jobs if entry["JobId"] == job["JobId"])

        assert state() == "RUNNING"
        again = stage.long(project)
        sentence = rf"process \d+ on \S+ \(Slurm job {job['JobId']}\) is training own/attention/seed0 here: wait for it or stop it, then run again"
        stage.until("the sentence", lambda: re.search(sentence, again.text) or again.process.poll() is not None)
        assert re.search(sentence, again.text), again.text[-3000:]
    stage.until("the end of the first job", lambda: state() in ENDED)
    assert state() == "COMPLETED"
    again.wait()  # it has tried until the first job ended, or six times
    last = stage.long(project)
    assert last.wait() == 0, last.text[-3000:]
    assert read_json(project.path(RECORD))["attempts"] == 1
    return weights(project)


def memory(stage: Stage) -> None:
    """A training that exceeds its memory is killed and submitted again with more."""
    project = stage.project("memory")
    project.edit("slurm/config.yaml", "min(24000 * attempt, 96000)", "150 + 1850 * (attempt > 1)")
    controller = Controller(stage, project, "--configfile", "config/smoke.yaml", "--", RECORD.replace("long", "smoke"))
    assert controller.wait() == 0, controller.text[-3000:]
    of_smoke = TRAIN.replace("long", "smoke")
    jobs = [job for job in stage.cluster.jobs(controller.run_id) if job["Comment"] == of_smoke]
    assert [(job["MinMemoryNode"], job["JobState"] == "COMPLETED") for job in jobs] == [
        ("150M", False),
        ("2000M", True),
    ]


def gate(stage: Stage) -> None:
    """Missed parity: attention's results and the measurement are there, no gated job has started, the sentence says why. Mended: only the rest runs."""
    project = stage.project("gate", "missed.yaml")
    arguments = ("--configfile", "config/smoke.yaml", "config/missed.yaml")
    missed = Controller(stage, project, *arguments)
    assert missed.wait() != 0
    assert "target of our own not reached: attention has 100.00 % WER on test" in missed.text
    run = project.path("results/missed")
    assert read_json(run / "parity.json")["passed"] is False
    assert read_json(run / "own/attention/seed0/score/test.json")["words"]["rate"] > 0
    assert {job["Comment"] for job in stage.cluster.jobs(missed.run_id)} >= {
        "rule_train_wildcards_missed_own_attention_0",
        "rule_decode_wildcards_missed_own_attention_0_test",
    }
    assert not [job for job in stage.cluster.jobs(missed.run_id) if "grassmann" in job["Comment"]]
    project.edit("config/missed.yaml", "wer: 0.0", "wer: 1000.0")
    mended = Controller(stage, project, *arguments)
    assert mended.wait() == 0, mended.text[-3000:]
    assert sorted(job["Comment"] for job in stage.cluster.jobs(mended.run_id)) == [
        "rule_decode_wildcards_missed_own_grassmann_0_test",
        "rule_train_wildcards_missed_own_grassmann_0",
    ]
    assert (run / "tables.md").is_file()


INTERRUPTED = (time_limit, cancelled, requeued, abandoned)
SCENARIOS = {scenario.__name__: scenario for scenario in (*INTERRUPTED, smoke, gate, memory)}


# -- the stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Iterator[Stage]:
    if reason := missing():
        pytest.skip(reason)
    # where the tests run in a shell's background SIGINT is ignored, and children would inherit that: Ctrl-C could not be tried
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tmp_path_factory.mktemp("slurm")
    lock, done = threading.Lock(), []

    def prepared() -> Path:
        """The smoke corpus prepared once, on this machine, by whoever needs it first."""
        with lock:
            if not done:
                project = checkout(folder / "prepared")
                project.snakemake("--configfile", "config/smoke.yaml", "--cores", "1", "prepare")
                done.append(project.path("data"))
            return done[0]

    with Cluster(folder / "cluster") as cluster:
        stage = Stage(cluster, folder, environment(**cluster.environment), prepared)
        try:
            yield stage
        finally:
            stage.end()


@pytest.fixture(scope="module")
def outcomes(stage, request) -> Iterator[dict]:
    """Futures of the scenarios whose tests were selected, started together."""
    specs = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    wanted = {spec.params["scenario"] for spec in specs if spec and "scenario" in spec.params} or {
        s.__name__ for s in INTERRUPTED
    }
    with ThreadPoolExecutor(len(wanted)) as pool:
        try:
            yield {name: pool.submit(scenario, stage) for name, scenario in SCENARIOS.items() if name in wanted}
        finally:
            stage.end()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario, outcomes):
    outcomes[scenario].result()


def test_interruptions_leave_no_trace(outcomes):
    """Time limit, scancel and Ctrl-C, requeue, a killed controller: the weights are the same bytes."""
    found = {}
    for scenario in INTERRUPTED:
        if scenario.__name__ in outcomes:
            with contextlib.suppress(AssertionError):  # reported by its own test
                found[scenario.__name__] = outcomes[scenario.__name__].result()
    if len(found) < 2:
        pytest.skip("fewer than two of the interrupted trainings ended")
    first, *others = found.values()
    assert len(first) == 3 and all(other == first for other in others), {
        name: sorted(kept) for name, kept in found.items()
    }


def test_the_page_names_scenarios():
    """Each test that docs/cluster.md's table of failures names is one of these or a folder of tests."""
    rows = [row.split("|") for row in (ROOT / "docs" / "cluster.md").read_text().splitlines() if row.startswith("|")]
    named = [cell for row in rows if len(row) == 7 for cell in row[-2].split(",")]
    assert set(re.findall(r"`(\w+)`", " ".join(named))) <= SCENARIOS.keys()
    assert all((ROOT / folder).is_dir() for folder in re.findall(r"tests/\w+", " ".join(named)))
    assert len(named) > 10


def test_stops_what_it_started(tmp_path):
    """After a failure inside the block no daemon, job or file outside the folder is left."""
    if reason := missing():
        pytest.skip(reason)
    before = set(os.listdir("/etc/slurm")) if Path("/etc/slurm").is_dir() else set()
    cluster = Cluster(tmp_path / "cluster")
    with pytest.raises(ZeroDivisionError), cluster:
        cluster.run("sbatch", "--output=/dev/null", "--wrap", f"touch {tmp_path}/started; exec sleep 1000")
        end = time.monotonic() + PATIENCE
        while not (tmp_path / "started").exists() and time.monotonic() < end:
            time.sleep(0.1)
        pids = {int(path.read_text()) for path in (tmp_path / "cluster" / "run").glob("*.pid")}
        raise ZeroDivisionError
    assert (tmp_path / "started").exists() and len(pids) == 3
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)]
    assert before == (set(os.listdir("/etc/slurm")) if Path("/etc/slurm").is_dir() else set())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
