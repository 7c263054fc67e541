"""Where ESPnet is installed, and how a step is run there."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.settings import ESPNET_VERSION


def espnet_python() -> Path:
    """The interpreter of ESPnet's environment: $GEOMIX_ESPNET_PYTHON, or .venv-espnet in the project's root."""
    named = os.environ.get("GEOMIX_ESPNET_PYTHON")
    python = Path(named) if named else Path(__file__).resolve().parents[3] / ".venv-espnet" / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise UserError(
            f"{python}: the track espnet needs ESPnet {ESPNET_VERSION}, which is not installed: run `make espnet`, or leave espnet out of study.tracks"
        )
    return python


def run_step(
    step: str,
    request: Mapping[str, Any],
    *,
    threads: int = 1,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a step of `geomix.espnet_track.run` in ESPnet's environment and return its answer.

    What it prints is appended to `log`, or shown when it fails, and goes to `on_line` line by line. SIGTERM and Ctrl-C are
    passed on.

    Raises
    ------
    UserError
        Without ESPnet; when the step was told to stop; and with the step's own sentence when it ended with one.
    """
    with tempfile.TemporaryDirectory(prefix="geomix-espnet-") as folder:
        question, answer = Path(folder, "request.json"), Path(folder, "answer.json")
        question.write_text(json.dumps({"step": step, "threads": threads, **request}), encoding="utf-8")
        source = str(Path(__file__).resolve().parents[2])
        environment = {
            **os.environ,
            # this package, whichever copy of it is running
            "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH")))),
            "OMP_NUM_THREADS": str(threads),
            "PYTHONUNBUFFERED": "1",
        }
        command = [str(espnet_python()), "-m", "geomix.espnet_track.run", str(question), str(answer)]
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=_die_with_parent,
        )
        kept: deque[str] = deque(maxlen=60)
        file = open(log, "a", encoding="utf-8") if log else contextlib.nullcontext()
        with _passed_on(process) as stopped, file as said:
            for line in process.stdout:
                kept.append(line)
                if said:
                    said.write(line)
                    said.flush()
                if on_line:
                    on_line(line)
            code = process.wait()
        last = next((line.strip() for line in reversed(kept) if line.strip()), "")
        if stopped:
            raise UserError(f"ESPnet's {step}: stopped by {stopped[0]}; run again to go on from its last whole epoch")
        if code:
            if not last.startswith("geomix: "):
                sys.stderr.writelines(kept)
            sentence = last.removeprefix("geomix: ") if last.startswith("geomix: ") else f"ended with {code}: {last}"
            raise UserError(f"ESPnet's {step}: {sentence}" + (f" (more in {log})" if log else ""))
        return json.loads(answer.read_text(encoding="utf-8"))


def _die_with_parent() -> None:
    """Have the kernel (Linux) kill this process with its parent, whose death frees the lock on the state folder."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _passed_on(process: subprocess.Popen) -> Iterator[list[str]]:
    """Pass SIGTERM and Ctrl-C on to `process` inside the block; the list gets their names."""
    stopped: list[str] = []

    def forward(number: int, _frame: object) -> None:
        stopped.append(signal.Signals(number).name)
        process.terminate()

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
