"""The sums of a training (losses, work, seconds) and what is told of them: log lines, progress lines, the summary."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import torch

from geomix.training import devices
from geomix.training.averaging import Metrics, Selection
from geomix.training.events import Lines
from geomix.training.options import TrainingSettings
from geomix.training.progress import duration, say
from geomix.training.task import Task


@dataclasses.dataclass
class Position:
    """Where the run stands (`batch` is the next one of `epoch`) and its running sums; a part of every checkpoint."""

    epoch: int = 1
    batch: int = 0
    update: int = 0
    skipped: int = 0
    loss: float = 0.0  # of this epoch's batches
    losses: int = 0
    recent: list[float] = dataclasses.field(default_factory=list)  # losses since the last update
    epoch_seconds: float = 0.0
    work: float = 0.0
    train_seconds: float = 0.0
    wait_seconds: float = 0.0
    seconds: float = 0.0
    attempts: int = 0
    peak_memory: int = 0
    finished: bool = False

    def next_epoch(self) -> None:
        """Move to the first batch of the epoch that follows."""
        self.epoch, self.batch, self.loss, self.losses, self.epoch_seconds = self.epoch + 1, 0, 0.0, 0, 0.0


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a finished training did.

    seconds : time of the attempts up to their last save; work lost to a kill, at most one save interval each, is not in
        it.
    rate : work per second of training time (without dev and saves); mfu relates it to `device_flops`.
    metrics : epoch -> dev metrics; scores : epoch -> the one by which epochs are kept; best : the kept ones, best first.
    """

    epochs: int
    updates: int
    skipped: int
    attempts: int
    seconds: float
    rate: float
    mfu: float
    data_wait: float
    device_flops: Mapping[str, float | str]
    peak_memory: int
    nondeterministic_ops: list[str]
    metrics: Metrics
    scores: dict[int, float]
    best: list[int]


def summarise(
    at: Position, task: Task, device: torch.device, metrics: Metrics, selection: Selection, ops: list[str]
) -> Summary:
    """The summary of a training that stands at its end."""
    flops = devices.device_flops(device)
    rate = at.work / max(at.train_seconds, 1e-9)
    return Summary(
        epochs=at.epoch - 1,
        updates=at.update,
        skipped=at.skipped,
        attempts=at.attempts,
        seconds=at.seconds,
        rate=rate,
        mfu=rate * task.flops_per_unit / flops["value"],
        data_wait=at.wait_seconds / max(at.train_seconds, 1e-9),
        device_flops=flops,
        peak_memory=at.peak_memory,
        nondeterministic_ops=ops,
        metrics=metrics,
        scores=selection.scores(metrics),
        best=selection.best(metrics),
    )


class Meter:
    """The clock and the sums of one attempt, from its beginning; it keeps the sums in `at`."""

    def __init__(
        self, name: str, at: Position, task: Task, settings: TrainingSettings, device: torch.device, log: Lines
    ) -> None:
        self._name, self._at, self._task, self._settings = name, at, task, settings
        self._device, self._log = device, log
        self._flops = devices.device_flops(device)
        self._begun = time.perf_counter()
        self._seconds_before = at.seconds
        self._rate_mark = (at.work, at.train_seconds)
        self._attempt_mark = (at.update, at.train_seconds)
        self._pending: list[torch.Tensor] = []  # losses of the batches since the last update, on the device
        self._loss = math.nan  # of the last update
        self._dev_seconds = 0.0
        self._lap = 0.0
        self.updates_per_epoch = 1

    # -- sums

    def add(self, loss: torch.Tensor, work: float) -> None:
        """Count a batch: its loss, still on the device, and its work."""
        self._pending.append(loss)
        self._at.work += work

    def collect(self) -> None:
        """Bring the losses since the last call to the host: one wait for the device an update, not one a batch."""
        if self._pending:
            self._at.recent += torch.stack(self._pending).tolist()
            self._pending.clear()

    def sum_losses(self) -> None:
        """Add the losses since the last update, if there are any, to the epoch's."""
        self.collect()
        at = self._at
        if not at.recent:
            return
        self._loss = sum(at.recent) / len(at.recent)
        for value in filter(math.isfinite, at.recent):
            at.loss += value
            at.losses += 1
        at.recent = []

    # -- time

    def start_lap(self) -> None:
        """Begin to count training time: at an epoch's beginning, and behind whatever is not training."""
        self._lap = time.perf_counter()

    def lap(self, waited: float) -> float:
        """Count the time of a batch, of which `waited` seconds for its data, and return the clock."""
        now, at = time.perf_counter(), self._at
        at.train_seconds += now - self._lap
        at.epoch_seconds += now - self._lap
        at.wait_seconds += waited
        self._lap = now
        return now

    def close(self) -> None:
        """Bring all sums up to date for a save."""
        self.collect()
        self._at.seconds = self._seconds_before + time.perf_counter() - self._begun
        self._at.peak_memory = max(self._at.peak_memory, devices.peak_memory(self._device))

    def _time_left(self) -> float:
        """Seconds: updates to come at this attempt's pace, and one dev evaluation an epoch."""
        at, settings = self._at, self._settings
        total = settings.epochs * self.updates_per_epoch
        total = min(total, settings.max_updates) if settings.max_updates else total
        updates, seconds = at.update - self._attempt_mark[0], at.train_seconds - self._attempt_mark[1]
        remaining = max(total - at.update, 0)
        evaluations = math.ceil(remaining / self.updates_per_epoch)
        return remaining * seconds / max(updates, 1) + evaluations * self._dev_seconds

    # -- what is said

    def report(self, rate: float, norm: float) -> None:
        """A line of the log and one for people on the last update: its learning rate and its gradient norm."""
        at, task = self._at, self._task
        work, seconds = at.work - self._rate_mark[0], at.train_seconds - self._rate_mark[1]
        self._rate_mark = (at.work, at.train_seconds)
        speed = work / max(seconds, 1e-9)
        mfu = speed * task.flops_per_unit / self._flops["value"]
        left = self._time_left()
        self._log.append(
            kind="step",
            epoch=at.epoch,
            update=at.update,
            loss=self._loss,
            lr=rate,
            grad_norm=norm,
            skipped=at.skipped,
            **{f"{task.unit}_per_s": round(speed, 2)},
            mfu=round(mfu, 4),
            time_left_s=round(left, 1),
        )
        say(
            f"{self._name}: epoch {at.epoch}/{self._settings.epochs} update {at.update:,} loss {self._loss:.4g} lr {rate:.3g} "
            f"{speed:,.0f} {task.unit.replace('_', '-')}/s MFU {100 * mfu:.1f} % left {duration(left)}"
        )

    def report_epoch(self, metrics: Mapping[str, Any], dev_seconds: float) -> None:
        """A line of the log and one for people on the epoch, judged in `dev_seconds`."""
        at = self._at
        self._dev_seconds = dev_seconds
        train_loss = at.loss / at.losses if at.losses else math.nan
        self._log.append(
            kind="epoch",
            epoch=at.epoch,
            update=at.update,
            train_loss=train_loss,
            **metrics,
            seconds=round(at.epoch_seconds + dev_seconds, 3),
            data_wait=round(at.wait_seconds / max(at.train_seconds, 1e-9), 5),
        )
        shown = ", ".join(f"{k} {v:.4g}" for k, v in metrics.items())
        say(f"{self._name}: epoch {at.epoch}/{self._settings.epochs} done, train loss {train_loss:.4g}, {shown}")
