"""`geomix status`: which runs of a study are done, running (with the time left) or failed; the store; prepared data that are out of date."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from geomix.commands.arguments import positive
from geomix.commands.watch import watch
from geomix.errors import UserError
from geomix.files import is_collision, read_object
from geomix.settings import settings_hash
from geomix.training.progress import Progress, duration, read_progress
from geomix.training.results import Trained
from geomix.training.store import Stored, finished_with, stored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "results", nargs="?", type=Path, metavar="RESULTS_DIR", help="results/<run> (default: that of the config)"
    )
    parser.add_argument(
        "--configfile",
        nargs="+",
        metavar="F",
        help="overlays on config.yaml: the runs that are planned, started or not",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=positive,
        const=5.0,
        metavar="SECONDS",
        help="draw it anew every 5 (or so many) seconds: epoch, dev error, loss, speed, time left, and why what waits or failed does",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print a line a run and the number in each state; what lies in the store; prepared data older than their sources."""
    planned: dict[tuple[str, str, int], str] = {}
    results, config = arguments.results, None
    if arguments.configfile is not None or results is None:
        from geomix.settings import load, stages, trainings_of

        config = load(*(arguments.configfile or []))
        planned = {(t, a, s): stages.training(config, a, s, t) for t, a, s in trainings_of(config["study"])}
        results = results or Path("results") / config["run"]
    if arguments.watch:
        watch(results, lambda: study_status(results, planned), config, arguments.watch)
        return
    rows = study_status(results, planned)
    if not rows:
        raise UserError(
            f"{results}: no run here and none planned: name another results folder, or a config with --configfile"
        )
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:<{width}}  {row.state:<8} {row.detail}".rstrip())
    counts = Counter(row.state for row in rows)
    print(", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]))
    root = _root(results)
    for line in (*other_runs(arguments, results), *store_lines(root / "state"), *stale_lines(root / "data")):
        print(line)


def other_runs(arguments: argparse.Namespace, results: Path) -> list[str]:
    """What to ask for, where no study was named and that of config.yaml has not begun."""
    if arguments.configfile is not None or arguments.results is not None or results.exists():
        return []
    others = sorted(str(path.parent) for path in results.parent.glob("*/corpus.json"))
    begun = f", or a folder: {', '.join(others)}" if others else ""
    return [f"these are the runs of config.yaml alone: for another study give --configfile FILE{begun}"]


STATES = ("done", "trained", "changed", "running", "failed", "waiting")


@dataclass(frozen=True)
class RunStatus:
    """One run: its name (track/arm/seedN), its state (one of `STATES`) and what there is to say of it.

    done: trained and scored; trained: trained, not scored yet; changed: one of these with settings that are no longer those
    of the configuration; running: a process holds its state folder; failed: it began, and no process holds it (killed,
    stopped or lost: started again it goes on), or Slurm refused it; waiting: not begun.
    """

    name: str
    state: str
    detail: str


def _root(results: Path) -> Path:
    """The project's root, which holds results/<run>, state/, logs/ and data/."""
    return Path(results).parent.parent


def study_status(results: Path, planned: Mapping[tuple[str, str, int], str] | None = None) -> list[RunStatus]:
    """Status of the planned runs, (track, arm, seed) -> the hash of its settings (`stages.training`), and of any other in
    results/<run> or claimed by the run in state/ beside it."""
    results = Path(results)
    entries = stored(_root(results) / "state")
    states: dict[str, list[Path]] = {}
    for entry in entries:
        for user in entry.users:
            if user.run == results.name:
                states.setdefault(user.name, []).append(entry.folder)
    keys = {f"{track}/{arm}/seed{seed}": key for (track, arm, seed), key in (planned or {}).items()}
    found = {str(path.relative_to(results)) for path in results.glob("*/*/seed*") if path.is_dir()}
    logs = _root(results) / "logs" / results.name
    refused = refused_jobs(_root(results))
    rows = []
    for name in [*keys, *sorted((found | set(states)) - set(keys))]:
        row = _run_status(name, results / name, states.get(name, []), logs / name)
        if row.state in ("done", "trained") and (change := _change(results / name, keys.get(name), entries)):
            row = RunStatus(name, "changed", change)
        elif row.state in ("failed", "waiting") and (said := refused.get(f"{results.name}/{name}")):
            row = RunStatus(name, "failed", said)
        rows.append(row)
    return rows


def _change(results: Path, key: str | None, entries: Iterable[Stored]) -> str | None:
    """What becomes of a finished run whose settings are not those of the configuration; None for one whose settings are."""
    settings = read_object(results / "record.json").get("settings")
    if key is None or not isinstance(settings, dict) or settings_hash(settings, {}) == key:
        return None
    there = finished_with(entries, key, {})
    then = f"the next call restores it from {there.folder}" if there else "the next call trains it again"
    return f"its settings have changed since: {then}"


_REFUSED = re.compile(
    r"^Error in rule (?P<rule>\w+):\n    message: (?P<message>(?:SLURM|Job) (?:sbatch failed|(?:job )?submission failed).*?)\n"
    r"    jobid: .*?\n    output: (?P<output>[^\n]*)",
    re.MULTILINE | re.DOTALL,
)


def refused_jobs(root: Path) -> dict[str, str]:
    """RUN/track/arm/seedN -> what Slurm said when it refused a job of it, in the log of Snakemake's last call."""
    logs = sorted((root / ".snakemake" / "log").glob("*.snakemake.log"))
    refused: dict[str, str] = {}
    for found in _REFUSED.finditer(logs[-1].read_text(encoding="utf-8", errors="replace") if logs else ""):
        run = re.search(r"results/([^/\s]+/[^/\s]+/[^/\s]+/seed[0-9]+)/", found["output"])
        said = re.search(r"error message was '?(.*?)'?\.?(?:\n|$)", found["message"])
        text = said[1] if said else found["message"].split("\n")[0]
        if run:
            refused[run[1]] = (
                f"Slurm refused {found['rule']}: {text} (look at its resources in slurm/config.yaml; `sinfo -o %G` shows the GPUs)"
            )
    return refused


def store_lines(root: Path) -> list[str]:
    """A line for each training in the store, by those who claim it, and what to do about those that nobody claims."""
    lines = []
    for entry in stored(root):
        users = ", ".join(map(str, entry.users)) or "claimed by nobody: remove it if no run is to have it"
        progress = read_progress(entry.folder)
        where = f"epoch {progress.epoch}" if progress else "not begun"
        state = f"finished {entry.finished}" if entry.finished else f"{where}, {_alive(progress)}"
        lines.append(f"{entry.folder}  {state}  {users}")
    return lines


def _alive(progress: Progress | None) -> str:
    return "running" if progress and progress.alive else "stopped"


def stale_lines(data: Path) -> list[str]:
    """Sentences about prepared splits (data/<corpus>/<split>-<key>) that are older than the files they were made from."""
    from geomix.speech.corpora import stale_sources

    lines = []
    for folder in sorted(path.parent for path in data.glob("*/*-*/sources.tsv")):
        if changed := stale_sources(folder):
            more = f", and {len(changed) - 1} more" if changed[1:] else ""
            lines.append(
                f"{folder}: older than its sources: {changed[0]}{more}; `snakemake --forcerun prepare_split` prepares it again"
            )
    return lines


def _run_status(name: str, results: Path, states: Iterable[Path], logs: Path) -> RunStatus:
    # a run whose settings changed has several state folders: the one written last is meant
    folders = sorted(states, key=lambda path: path.stat().st_mtime)
    progress = read_progress(folders[-1]) if folders else None
    if progress and progress.alive:
        left = f", {duration(progress.time_left)} left" if progress.time_left is not None else ""
        loss = f", loss {progress.loss:.3g}" if progress.loss is not None else ""
        return RunStatus(name, "running", f"epoch {progress.epoch}, update {progress.update:,}{loss}{left}")
    if (results / "record.json").exists():
        # a language model's training measures its perplexities itself
        if "perplexity" in read_object(results / "record.json"):
            track, arm, seed = name.split("/")
            found = Trained(results, track, arm, int(seed.removeprefix("seed"))).perplexity
            return RunStatus(name, "done", f"test perplexity {found['test']['batch_mean']:.1f}")
        scored = sorted(path.stem for path in (results / "score").glob("*.json"))
        return RunStatus(name, "done", ", ".join(scored)) if scored else RunStatus(name, "trained", "not scored yet")
    if progress:
        detail = f"in epoch {progress.epoch}, update {progress.update:,}"
        log = logs / "train.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        # of a job that found another one at work there: that one is gone
        sentence = next(
            (line for line in reversed(lines) if line.startswith("geomix: ") and not is_collision(line)), None
        )
        return RunStatus(name, "failed", sentence.removeprefix("geomix: ") if sentence else detail)
    return RunStatus(name, "waiting", "")
