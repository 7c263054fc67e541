"""Cases, their running in processes of their own, and the shrinking of one that fails.

A target makes an intact input in an empty folder (`make`), damages it step by step (`damage`) and reads it (`read`). A case is
the target's name, a seed for `make` and a seed for each step, so that it can be made again from what is printed, and made
smaller by leaving steps out. The target raises `Fault` for what must not be; `read` may raise `UserError`, one sentence.
Whatever else comes out of it is a fault too: another exception, a signal, a process that does not come back.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from geomix.errors import UserError, sentence_of

PATIENCE = 1800
"""Seconds after which a case counts as one that hangs."""

MOST_STEPS = 4
LONGEST = 1500
"""Letters of the longest sentence."""


class Fault(AssertionError):
    """What must not come out of any input."""


class Target(Protocol):
    """One kind of input, and what reads it."""

    name: str

    def make(self, folder: Path, draw: random.Random) -> Any:
        """Write an intact input into `folder`; what is returned is handed to the other two."""

    def damage(self, folder: Path, made: Any, draw: random.Random) -> None:
        """One step of damage."""

    def read(self, folder: Path, made: Any) -> None:
        """Read the input as the product does, and check what comes of it."""


@dataclass(frozen=True)
class Case:
    """An input: the target's name, the seed of the intact form, and a seed for each step of damage."""

    target: str
    seed: int
    steps: tuple[int, ...]

    @classmethod
    def drawn(cls, target: str, seed: int) -> Case:
        """The case of a seed; one in ten is intact."""
        draw = random.Random(f"{target} {seed}")
        count = 0 if draw.random() < 0.1 else draw.randint(1, MOST_STEPS)
        return cls(target, seed, tuple(draw.getrandbits(32) for _ in range(count)))

    @classmethod
    def parsed(cls, text: str) -> Case:
        """From what `str` gave."""
        target, seed, *steps = text.split(":")
        return cls(target, int(seed), tuple(map(int, steps)))

    def __str__(self) -> str:
        return ":".join(map(str, (self.target, self.seed, *self.steps)))


@dataclass(frozen=True)
class Found:
    """A case that came out wrong, and how."""

    case: Case
    what: str


def check_sentence(error: Exception) -> None:
    """What a person reads of an error is one sentence, as commands and rules print it: not empty, of bearable length."""
    sentence = sentence_of(error)
    if sentence is None:
        raise error
    if not sentence.strip() or len(sentence) > LONGEST or "Traceback" in sentence:
        raise Fault(f"not one sentence: {sentence[:3000]!r}") from error


def all_of(*readers: Callable[[], object]) -> None:
    """Call each reader; the first `UserError` is raised when all have had their turn."""
    said = []
    for reader in readers:
        try:
            reader()
        except (UserError, OSError) as error:
            check_sentence(error)
            said.append(error)
    if said:
        raise said[0]


def outcome(target: Target, case: Case) -> str | None:
    """Run a case here; what is wrong with its outcome, or None. An intact input must be read without a word."""
    here, folder = os.getcwd(), Path(tempfile.mkdtemp(prefix="geomix-fuzz-"))
    try:
        made = target.make(folder, random.Random(case.seed))
        for step in case.steps:
            target.damage(folder, made, random.Random(step))
        try:
            target.read(folder, made)
        except (UserError, OSError) as error:
            check_sentence(error)
            if not case.steps:
                raise Fault(f"an intact input is refused: {error}") from error
        half = [str(path) for path in folder.rglob("*.tmp")]
        if half:
            raise Fault(f"half-written files stay: {half}")
    except Exception:
        return traceback.format_exc()
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)
    return None


# -- processes, so that a signal is a result


def _serve(connection, names: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends what it started
    from tests.fuzz.targets import TARGETS

    sys.stdout = sys.stderr = open(os.devnull, "w")
    targets = {name: TARGETS[name]() for name in names}
    while (case := connection.recv()) is not None:
        connection.send(outcome(targets[case.target], case))


class Worker:
    """A process that runs cases; a new one takes its place when a case kills it."""

    def __init__(self, names: Sequence[str]):
        self._names, self._process = names, None

    def run(self, case: Case) -> str | None:
        """What is wrong with the outcome of a case, or None."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._ours, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._names), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._ours.send(case)
            if self._ours.poll(PATIENCE):
                return self._ours.recv()
            what = f"did not come back within {PATIENCE} s"
            self._process.kill()
        except (EOFError, ConnectionError):
            self._process.join()
            what = f"the process ended with {self._process.exitcode} (below 0: of that signal)"
        self._process.join()
        self._process = None
        return what

    def close(self) -> None:
        if self._process is not None:
            self._ours.send(None)
            self._process.join()
            self._process = None


def shrunk(worker: Worker, found: Found) -> Found:
    """The case with as few of its steps as show the same kind of fault, tried one by one."""
    kind, position = _kind(found.what), 0
    while position < len(found.case.steps):
        steps = found.case.steps
        smaller = replace(found.case, steps=steps[:position] + steps[position + 1 :])
        what = worker.run(smaller)
        if what is not None and _kind(what) == kind:
            found = Found(smaller, what)
        else:
            position += 1
    return found


def _kind(what: str) -> str:
    """The last line up to its first colon: the exception's name, or what happened to the process."""
    return what.strip().splitlines()[-1].partition(":")[0]


@dataclass
class Tally:
    """How many cases ran, by target, and the faults, one of each kind and place."""

    cases: dict[str, int]
    found: dict[str, Found]


def search(names: Sequence[str], cases: Iterator[Case], workers: int, until: float | None = None) -> Tally:
    """Run cases on several workers until they are used up, or until the clock (`time.monotonic`) says so."""
    tally, pool = Tally(dict.fromkeys(names, 0), {}), [Worker(names) for _ in range(workers)]

    def work(worker: Worker) -> None:
        for case in cases:
            if until is not None and time.monotonic() > until:
                return
            what = worker.run(case)
            tally.cases[case.target] += 1
            if what is not None:
                found = shrunk(worker, Found(case, what))
                tally.found.setdefault(f"{case.target} {_place(found.what)}", found)

    cases = _Shared(cases)
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(work, pool))
    for worker in pool:
        worker.close()
    return tally


def _place(what: str) -> str:
    """Where a fault arose and its kind: the traceback's last line of code and of text."""
    lines = [line.strip() for line in what.strip().splitlines()]
    return f"{next((line for line in reversed(lines) if line.startswith('File ')), '')} {_kind(what)}"


class _Shared:
    """One iterator for several threads."""

    def __init__(self, cases: Iterator[Case]):
        self._cases, self._lock = cases, threading.Lock()

    def __iter__(self) -> Iterator[Case]:
        return self

    def __next__(self) -> Case:
        with self._lock:
            return next(self._cases)


def endless(names: Sequence[str], seed: int) -> Iterator[Case]:
    """Cases of all targets in turn, from a seed on."""
    number = seed
    while True:
        for name in names:
            yield Case.drawn(name, number)
        number += 1
