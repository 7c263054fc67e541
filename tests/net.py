"""The net under a rebuild: an old and a new checkout on one machine give the same weights, tables and jobs.

    python -m tests.net OLD NEW [--only weights tables jobs slurm cost] [--python PYTHON]

Both are paths of checkouts of geomix; each is driven through its own Snakefile and command line, in a fresh copy of its
workflow, so that neither is touched. One line a check: `same`, or `DIFFERENT` with names. The status is 1 when weights,
tables or the Slurm profile differ from what they must be; jobs and times are reported for a person to judge.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

WORKFLOW = ("Snakefile", "config.yaml", "rules", "workflow_scripts", "config", "profiles", "slurm")
CHECKS = ("weights", "tables", "jobs", "slurm", "cost")
# modules that parsing the DAG could do without
WATCHED = ("torch", "numpy", "scipy", "pandas", "pydantic", "jsonschema")
# the smoke study with every mixer of config.yaml, at its size; `unmatched`: their parameters do not matter here
ALL_ARMS = """\
study: {arms: [attention, grassmann, symmetric, no_mixer, grassmann_causal, grassmann_one_offset, signed, geometric]}
arms:
  grassmann_causal: {rank: 12, offsets: [1, 2, 4], unmatched: true}
  grassmann_one_offset: {rank: 12, offsets: [1, 2, 4], unmatched: true}
  signed: {rank: 12, offsets: [1, 2, 4], unmatched: true}
  geometric: {rank: 12, offsets: [1, 2, 4], unmatched: true}
"""
# overlays whose jobs are compared
PLANS = {"the full study": (), "an4": ("config/an4.yaml",), "demo + espnet": ("config/demo.yaml", "config/espnet.yaml")}
PUBLISHED = ("an4", "wikitext2")
RULE = re.compile(r"^[ \t]*(?:(?:rule|checkpoint) (\w+)|use rule (\w+) as (\w+) with):", re.MULTILINE)
TRAINING_SCRIPT = re.compile(r"(?:^|_)train(?:ing)?[_.]")
# trainings that ask for no GPU, and why
ON_CPUS = {
    "algebra_job": "thousands of models of a few hundred parameters, full batch: a GPU would wait for its own launches",
    "algebra_job_with_weights": "as algebra_job",
    "algebra_train": "a Transformer of two blocks of width 64 on a small text: minutes a seed on one thread",
}


# ---- checkouts and their copies ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Checkout:
    """A checkout of geomix, driven by subprocess with the interpreter `python`."""

    folder: Path
    python: str

    def copy(self, folder: Path) -> Path:
        """Copy the workflow's files into `folder`; returns it."""
        folder.mkdir(parents=True)
        for name in WORKFLOW:
            source = self.folder / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            elif source.exists():
                shutil.copy(source, folder / name)
        return folder

    def run(self, where: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with `arguments` in `where`, on this checkout's sources and one thread."""
        data = os.environ.get("GEOMIX_DATA", str(self.folder.parent / "shared" / "data"))
        done = subprocess.run(
            [self.python, *arguments],
            cwd=where,
            env={
                **os.environ,
                "PYTHONPATH": str(self.folder / "src"),
                "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}",
                "OMP_NUM_THREADS": "1",
                "GEOMIX_DATA": data,
            },
            text=True,
            capture_output=True,
            check=False,
        )
        if check and done.returncode:
            tail = (done.stdout + done.stderr)[-3000:]
            raise SystemExit(f"{self.folder}: {' '.join(arguments)} ended with {done.returncode}:\n{tail}")
        return done

    def snakemake(self, where: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run snakemake in `where`."""
        return self.run(where, "-m", "snakemake", "--nocolor", *arguments, check=check)


# ---- weights -----------------------------------------------------------------------------------------------------------
def tensors(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Name -> (type, shape, bytes) of each tensor of a safetensors file, read without a library; its metadata is left out."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {
        name: (entry["dtype"], tuple(entry["shape"]), body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def train_smoke(checkout: Checkout, folder: Path) -> dict[str, dict]:
    """Train the smoke study of all arms and the small language study; returns `study/arm/seed` -> tensors of the model."""
    found = {}
    for study, target in (("speech", ()), ("language", ("language",))):
        print(f"training the smoke study ({study}) of {checkout.folder} ...", file=sys.stderr, flush=True)
        where = checkout.copy(folder / study)
        overlays = ["config/smoke.yaml"]
        if study == "speech":
            (where / "all_arms.yaml").write_text(ALL_ARMS, encoding="utf-8")
            overlays.append("all_arms.yaml")
        checkout.snakemake(where, "--cores", "1", *target, "--configfile", *overlays)
        for path in sorted((where / "results").rglob("model.safetensors")):
            found[f"{study}/{path.parent.parent.name}/{path.parent.name}"] = tensors(path)
    return found


def check_weights(old: Checkout, new: Checkout, folder: Path) -> Iterator[tuple[bool, str]]:
    """The smoke study of every arm on the own track and the small language run, byte by byte."""
    before, after = train_smoke(old, folder / "old"), train_smoke(new, folder / "new")
    if not before:
        yield False, "weights: DIFFERENT: the old checkout trained nothing"
    for name in sorted(before | after):
        yield compared(f"weights {name}", before.get(name), after.get(name))


def compared(name: str, before: dict | None, after: dict | None) -> tuple[bool, str]:
    """One line on two dictionaries: the same, or which keys differ."""
    if before is None or after is None:
        return False, f"{name}: DIFFERENT: only the {'new' if before is None else 'old'} checkout has it"
    wrong = [key for key in sorted(before | after) if before.get(key) != after.get(key)]
    return not wrong, f"{name}: DIFFERENT: {', '.join(wrong)}" if wrong else f"{name}: same ({len(before)})"


# ---- published tables --------------------------------------------------------------------------------------------------
def rebuilt(checkout: Checkout, run: str, folder: Path) -> dict[str, bytes]:
    """Rebuild the tables of a published run from its records; returns file name -> bytes. The checkout is not touched."""
    published = checkout.folder / "results" / "published" / run
    source = published if published.is_dir() else checkout.folder / "results" / run
    copy = shutil.copytree(source, folder / "published" / run)  # old code writes where it reads
    if run == "wikitext2" and (copy / "language").is_dir():
        copy = copy / "language"
    out = folder / "out" / run
    with_out = "--out" in checkout.run(checkout.folder, "-m", "geomix.cli", "tables", "--help").stdout
    if with_out:
        checkout.run(checkout.folder, "-m", "geomix.cli", "tables", str(copy), "--out", str(out))
    else:
        out = copy
        for name in ("tables.csv", "tables.md"):  # what is compared is what was rebuilt
            (copy / name).unlink()
        if run == "wikitext2":  # old `geomix tables` knows the speech study alone
            code = f"from geomix.report.language import build_report; build_report({str(copy)!r})"
            checkout.run(checkout.folder, "-c", code)
        else:
            checkout.run(checkout.folder, "-m", "geomix.cli", "tables", str(copy))
    return {path.name: path.read_bytes() for path in sorted(out.glob("tables.*"))}


def check_tables(old: Checkout, new: Checkout, folder: Path) -> Iterator[tuple[bool, str]]:
    """Tables of the published runs, rebuilt in both checkouts."""
    for run in PUBLISHED:
        yield compared(f"tables of {run}", rebuilt(old, run, folder / "old"), rebuilt(new, run, folder / "new"))


# ---- jobs --------------------------------------------------------------------------------------------------------------
def jobs(checkout: Checkout, where: Path, *arguments: str) -> list[str]:
    """Jobs that a dry run lists: `rule wildcard=value ...`, in order."""
    text = checkout.snakemake(where, "--dry-run", *arguments).stdout
    found = []
    for block in re.split(r"\n(?=\[|(?:local)?(?:rule|checkpoint) )", text):
        rule = re.search(r"^(?:local)?(?:rule|checkpoint) (\w+):", block, re.MULTILINE)
        if not rule or "\n    jobid:" not in block:
            continue
        wildcards = re.search(r"^    wildcards: (.*)$", block, re.MULTILINE)
        found.append(" ".join([rule[1], *sorted(wildcards[1].split(", "))] if wildcards else [rule[1]]))
    return sorted(found)


def check_jobs(old: Checkout, new: Checkout, folder: Path) -> Iterator[tuple[bool, str]]:
    """Jobs of a fresh dry run, by rule; a difference is for a person to judge."""
    before, after = old.copy(folder / "old"), new.copy(folder / "new")
    for name, overlays in PLANS.items():
        arguments = ("--configfile", *overlays) if overlays else ()
        lists = jobs(old, before, *arguments), jobs(new, after, *arguments)
        counts = [Counter(job.split()[0] for job in each) for each in lists]
        moved = [
            f"{rule} {counts[0][rule]} -> {counts[1][rule]}"
            for rule in sorted(counts[0] | counts[1])
            if counts[0][rule] != counts[1][rule]
        ]
        yield True, f"jobs of {name}: {'DIFFERENT: ' + ', '.join(moved) if moved else f'same ({len(lists[0])})'}"
        trainings = [sorted(job for job in each if job.startswith("train")) for each in lists]
        for what, these, those in (("lost", *trainings), ("new", *reversed(trainings))):
            if gone := list((Counter(these) - Counter(those)).elements()):
                yield True, f"  {what} trainings of {name}: {'; '.join(gone)}"


# ---- the Slurm profile -------------------------------------------------------------------------------------------------
def rules_of(checkout: Path) -> dict[str, str]:
    """Rule -> file name of its script ("" without one), read from Snakefile and rules/*.smk; `use rule` takes over its base's."""
    found: dict[str, str] = {}
    bases: dict[str, str] = {}
    for path in [checkout / "Snakefile", *sorted((checkout / "rules").glob("*.smk"))]:
        text = path.read_text(encoding="utf-8")
        heads = list(RULE.finditer(text))
        for head, end in zip(heads, [*(h.start() for h in heads[1:]), len(text)], strict=False):
            name = head[1] or head[3]
            script = re.search(r'^\s+script:\s+"([^"]+)"', text[head.end() : end], re.MULTILINE)
            found[name] = Path(script[1]).name if script else ""
            if head[2] and not script:
                bases[name] = head[2]
    return found | {name: found.get(base, "") for name, base in bases.items()}


def slurm_faults(checkout: Path) -> list[str]:
    """Sentences on what is wrong between the workflow's training rules and slurm/config.yaml; empty when nothing is."""
    rules = rules_of(checkout)
    profile = yaml.safe_load((checkout / "slurm" / "config.yaml").read_text(encoding="utf-8"))
    asked = profile["set-resources"]
    trainings = [
        name for name, script in rules.items() if TRAINING_SCRIPT.search(script) or re.match(r"train(_|$)", name)
    ]
    faults = [] if trainings else ["no training rule found"]
    for name in trainings:
        resources = asked.get(name)
        if resources is None:
            faults.append(f"{name} trains and is not among set-resources: it would run on the CPU partition")
        elif (resources.get("gpu"), resources.get("gpu_model")) != (1, "a100"):
            faults.append(f"{name} asks for {resources.get('gpu')} x {resources.get('gpu_model')}, not for one a100")
        elif resources.get("slurm_partition") == profile["default-resources"]["slurm_partition"]:
            faults.append(f"{name} asks for a GPU on the CPU partition")
    faults += [f"set-resources names {name}, which is no rule" for name in asked if name not in rules]
    faults += [f"ON_CPUS names {name}, which is no rule" for name in ON_CPUS if name not in rules]
    return faults


def check_slurm(old: Checkout, new: Checkout, folder: Path) -> Iterator[tuple[bool, str]]:
    """Every training rule of both checkouts asks for one A100 under --profile slurm."""
    for name, checkout in (("old", old), ("new", new)):
        faults = slurm_faults(checkout.folder)
        yield (
            not faults,
            f"slurm profile, {name}: {'DIFFERENT: ' + '; '.join(faults) if faults else 'one A100 a training'}",
        )


# ---- what a dry run costs ----------------------------------------------------------------------------------------------
def imports(checkout: Checkout, where: Path) -> dict[str, float]:
    """Seconds that a dry run of the full study spends importing each of WATCHED, what these import included."""
    text = checkout.run(where, "-X", "importtime", "-m", "snakemake", "--nocolor", "--dry-run").stderr
    lines = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \| ( *)([\w.]+)$", text, re.MULTILINE)
    seconds: dict[str, float] = {}
    above: list[
        tuple[int, str]
    ] = []  # (depth, package) of the modules that import the line's; parents are printed last
    for microseconds, indent, module in reversed(lines):
        while above and above[-1][0] >= len(indent):
            above.pop()
        package = module.partition(".")[0]
        if package in WATCHED and package not in [name for _, name in above]:
            seconds[package] = seconds.get(package, 0) + int(microseconds) / 1e6
        above.append((len(indent), package))
    return seconds


def check_cost(old: Checkout, new: Checkout, folder: Path) -> Iterator[tuple[bool, str]]:
    """Time of a dry run of the full study, each checkout in turn, and what it imports."""
    seconds: dict[str, list[float]] = {"old": [], "new": []}
    places = {name: (c, c.copy(folder / name)) for name, c in (("old", old), ("new", new))}
    for name in ("old", "new") * 3:
        checkout, where = places[name]
        start = time.perf_counter()
        checkout.snakemake(where, "--dry-run")
        seconds[name].append(time.perf_counter() - start)
    for name, (checkout, where) in places.items():
        costs = ", ".join(f"{module} {cost:.2f} s" for module, cost in imports(checkout, where).items()) or "none"
        runs = " ".join(f"{s:.2f}" for s in seconds[name])
        yield True, f"dry run, {name}: {statistics.median(seconds[name]):.2f} s (of {runs}); imports {costs}"


def main() -> None:
    """Run the checks and end with status 1 where one that must hold does not."""
    parser = argparse.ArgumentParser(prog="python -m tests.net", description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=CHECKS)
    parser.add_argument("--python", default=sys.executable, help="interpreter for both checkouts")
    arguments = parser.parse_args()
    old, new = (Checkout(path.resolve(), arguments.python) for path in (arguments.old, arguments.new))
    checks: dict[str, Callable] = {name: globals()[f"check_{name}"] for name in CHECKS}
    held = True
    with tempfile.TemporaryDirectory(prefix="geomix-net-") as temporary:
        for name in arguments.only:
            for fine, line in checks[name](old, new, Path(temporary) / name):
                held &= fine
                print(line, flush=True)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
