"""The training loop: accumulation, schedule, checkpoints and resume, progress; the same for speech and for language.

A run lives in a state folder (which `store.opened` locks for it) that holds `last.ckpt` and `previous.ckpt` (the full state),
`epoch-N.safetensors` (the weights of the best epochs) and `log.jsonl`. It may be killed at any moment: started again
with the same settings it goes on from the newest whole checkpoint and, on a CPU, ends with bit-identical weights.
Gradients of an unfinished accumulation are part of the state, so a save may fall between any two batches.

ESPnet's semantics (https://github.com/espnet/espnet/blob/master/espnet2/train/trainer.py): loss / accumulation, an
update after every `accumulation`-th batch of an epoch, the gradients of an incomplete last group carried over to the
next epoch; a step whose gradient norm is not finite is skipped, and the schedule does not advance.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from geomix.errors import UserError
from geomix.tensors import state_once, write_tensors
from geomix.training import checkpoints, devices
from geomix.training.averaging import Selection
from geomix.training.detectors import learns_nothing
from geomix.training.progress import LOG, Log, duration, say
from geomix.training.schedules import SCHEDULES
from geomix.training.seeding import seed_all


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How to train; the defaults are the LibriSpeech-100 recipe of ESPnet's CTC models.

    epochs, max_updates : where the run ends (max_updates None: after the epochs).
    accumulation : batches per update; each loss is divided by it.
    optimizer : "adam" (weight decay added to the gradient) or "adamw" (decoupled).
    learning_rate, schedule, warmup : see `schedules.SCHEDULES`.
    clip : largest gradient norm; 0 does not clip.
    precision : "fp32", "bf16" (autocast) or "auto" (bf16 on CUDA, else fp32).
    save_minutes : time between two saves of the state, besides those at each epoch's end and on SIGTERM.
    keep_best, best_by : how many epochs' weights are kept, by which dev metric (smaller is better).
    detect_after : updates after which a run that emits only blanks or sits at the unigram floor is stopped; None:
        never.
    log_every : updates between two progress lines.
    """

    epochs: int = 70
    max_updates: int | None = None
    accumulation: int = 4
    optimizer: str = "adam"
    learning_rate: float = 2e-3
    weight_decay: float = 1e-6
    schedule: str = "warmup"
    warmup: int = 15000
    clip: float = 5.0
    precision: str = "auto"
    save_minutes: float = 10.0
    keep_best: int = 10
    best_by: str = "dev_cer"
    log_every: int = 50
    detect_after: int | None = 4000

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingSettings:
        """Settings from plain values; an unknown key or a wrong value is a UserError that names it."""
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(set(values) - set(names)):
            raise UserError(f"training.{unknown[0]} is not a setting: use {', '.join(names)}")
        settings = cls(**values)
        choices = {"optimizer": ("adam", "adamw"), "schedule": tuple(SCHEDULES), "precision": ("auto", "fp32", "bf16")}
        for key, allowed in choices.items():
            if getattr(settings, key) not in allowed:
                raise UserError(f"training.{key} is {getattr(settings, key)!r}: use one of {', '.join(allowed)}")
        for key in ("epochs", "accumulation", "learning_rate", "warmup", "keep_best", "log_every"):
            if getattr(settings, key) <= 0:
                raise UserError(f"training.{key} is {getattr(settings, key)!r}: it must be positive")
        return settings

    @property
    def selection(self) -> Selection:
        """The epochs whose weights are kept."""
        return Selection(self.keep_best, self.best_by)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Keyword arguments of the model's forward, on its device, and their amount of work (audio-seconds, tokens)."""

    inputs: dict[str, torch.Tensor]
    work: float


class Task(Protocol):
    """What is trained: batches that can be asked for by index, a judgement of the model, and the size of the work.

    unit : what `Batch.work` counts, as it stands in the log ("audio_s", "tokens").
    flops_per_unit : floating point operations of a training step per unit of work.
    floor : dev loss of the best guess that ignores the input, or None.
    smaller_batches : what a person does to make the batches smaller.
    """

    unit: str
    flops_per_unit: float
    floor: float | None
    smaller_batches: str

    def batches(self, epoch: int) -> Sequence[Batch]:
        """Batches of an epoch (1 is the first), made when asked for; the i-th depends on (seed, epoch, i) alone."""

    def largest(self) -> Sequence[Batch]:
        """The batches that need the most memory."""

    def describe(self, batch: Batch) -> str:
        """A batch in words, for a person whose memory it does not fit."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Dev metrics of the model, which is in eval mode; they hold the setting `best_by`."""


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
    device_flops: dict[str, Any]
    peak_memory: int
    nondeterministic_ops: list[str]
    metrics: dict[int, dict[str, float]]
    scores: dict[int, float]
    best: list[int]


def uses_bf16(settings: TrainingSettings, device: torch.device) -> bool:
    """Whether the forward pass runs under bf16 autocast."""
    return settings.precision == "bf16" or (settings.precision == "auto" and device.type == "cuda")


def make_optimizer(model: nn.Module, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """Adam or AdamW over all parameters."""
    optimizer = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    fused = device.type in ("cpu", "cuda")
    return optimizer(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=fused)


def training_step(model: nn.Module, batch: Batch, settings: TrainingSettings) -> torch.Tensor:
    """Forward and backward of one batch, loss / accumulation added to the gradients -> the loss, on the device."""
    device = next(iter(batch.inputs.values())).device
    with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16(settings, device)):
        loss = model(**batch.inputs)["loss"]
    (loss / settings.accumulation).backward()
    return loss.detach()


class _Stop(Exception):
    pass


class StopSignal:
    """SIGTERM and Ctrl-C as a wish to stop: noted, and raised as `_Stop` inside an `interruptible` block."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._interruptible = False

    def __enter__(self) -> StopSignal:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.name = signal.Signals(number).name
        if self._interruptible:
            raise _Stop

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block that changes nothing and may be long: left at once when told to stop."""
        self._interruptible = True
        try:
            if self.name:
                raise _Stop
            yield
        finally:
            self._interruptible = False


def prefetch(batches: Sequence[Batch], start: int = 0, ahead: int = 2) -> Iterator[tuple[Batch, float]]:
    """Batches from `start` on, made up to `ahead` early by a thread, each with the seconds that were waited for it."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
    try:
        pending = deque(pool.submit(batches.__getitem__, i) for i in range(start, min(start + ahead, len(batches))))
        for index in range(start, len(batches)):
            begun = time.perf_counter()
            batch = pending.popleft().result()
            waited = time.perf_counter() - begun
            if index + ahead < len(batches):
                pending.append(pool.submit(batches.__getitem__, index + ahead))
            yield batch, waited
    finally:
        pool.shutdown(cancel_futures=True)


@dataclasses.dataclass
class _Position:
    """Where the run stands (`batch` is the next one of `epoch`) and its running sums."""

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


class Trainer:
    """Trains `model` on `task` in `state_dir`; `run` may be called again after any interruption.

    state_dir : the caller holds its lock (`store.opened`).
    identity : which training this is; a state folder of another one is refused. Its hash must cover everything that changes
        the weights (the settings, the seed, hashes of the data) and nothing else (not the device, the threads, the
        selection of epochs or the detectors).
    seed : of dropout; the task seeds its own draws.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: TrainingSettings,
        *,
        state_dir: Path,
        identity: checkpoints.Identity,
        seed: int,
        device: torch.device,
        name: str = "the run",
    ):
        self.model = model.to(device)
        self.task, self.settings, self.device, self.name, self.seed = task, settings, device, name, seed
        self.state_dir, self.identity = Path(state_dir), identity
        self.optimizer = make_optimizer(self.model, settings, device)
        self._pending: list[torch.Tensor] = []  # losses of the batches since the last update, on the device
        self._loss = self._norm = math.nan  # of the last update
        self._lr = 0.0
        self._at = _Position()
        self._metrics: dict[int, dict[str, float]] = {}
        self._selection = settings.selection
        self._nondeterministic: list[str] = []

    # -- the run

    def run(self) -> Summary:
        """Train to the end, from wherever the state folder stands.

        Raises UserError when stopped by a signal (the state is saved), when a detector finds the run lost, when the
        largest batch does not fit, and for whatever is wrong with the state folder.
        """
        with StopSignal() as self._stop:
            for path in self.state_dir.glob(".*.tmp"):  # what a kill left half written
                path.unlink()
            self._restore()
            if not self._at.finished:
                try:
                    self._train()
                except OSError as error:
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    raise UserError(
                        f"{self.state_dir}: the disk is full; the last checkpoint is kept: free some space and run again"
                    ) from error
                except _Stop:
                    self._save()
                    at = self._at
                    raise UserError(
                        f"{self.name}: stopped by {self._stop.name} in epoch {at.epoch} after update {at.update:,}; "
                        f"the state is saved in {self.state_dir}: run again to go on"
                    ) from None
                finally:
                    self._log.close()
            self._prune()
        return self._summary()

    def _train(self) -> None:
        self._flops = devices.device_flops(self.device)
        self._at.attempts += 1
        self._begun = time.perf_counter()
        self._seconds_before = self._at.seconds
        self._rate_mark = (self._at.work, self._at.train_seconds)
        self._attempt_mark = (self._at.update, self._at.train_seconds)
        self._dev_seconds = 0.0
        self._try_largest()
        self._save()
        while not self._at.finished:
            self._epoch()

    def _epoch(self) -> None:
        at = self._at
        batches = self.task.batches(at.epoch)
        self._updates_per_epoch = max(1, len(batches) // self.settings.accumulation)
        self.model.train()
        begun = time.perf_counter()
        source = prefetch(batches, at.batch)
        while at.batch < len(batches) and not self._enough():
            batch, waited = next(source)
            self._step(batch)
            now = time.perf_counter()
            at.train_seconds += now - begun
            at.epoch_seconds += now - begun
            at.wait_seconds += waited
            begun = now
            if at.batch % self.settings.accumulation == 0 and (
                at.update % self.settings.log_every == 0 or at.update == 1
            ):
                self._report()
            if self._stop.name:
                source.close()
                raise _Stop
            if now - self._saved > 60 * self.settings.save_minutes:
                self._save()
                begun = time.perf_counter()
        source.close()
        self._finish_epoch()

    def _enough(self) -> bool:
        return self.settings.max_updates is not None and self._at.update >= self.settings.max_updates

    def _step(self, batch: Batch) -> None:
        """One batch: forward, backward and, at the end of an accumulation, an update."""
        at = self._at
        seed_all(self.seed, "batch", at.epoch, at.batch)
        self._pending.append(training_step(self.model, batch, self.settings))
        at.batch += 1
        at.work += batch.work
        if at.batch % self.settings.accumulation == 0:
            self._update()

    def _update(self) -> None:
        at, settings = self._at, self.settings
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip or math.inf)
        self._norm = norm.item()
        at.update += 1
        if math.isfinite(self._norm):
            step = at.update - at.skipped
            self._lr = SCHEDULES[settings.schedule](
                step, at.epoch, settings.learning_rate, settings.warmup, settings.epochs
            )
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr
            self.optimizer.step()
        else:
            at.skipped += 1
            say(
                f"{self.name}: update {at.update:,} skipped, its gradient norm is {self._norm} ({at.skipped:,} skipped so far)"
            )
        self.optimizer.zero_grad(set_to_none=True)
        self._sum_losses()

    def _collect_losses(self) -> None:
        """Bring the losses since the last call to the host: one wait for the device an update, not one a batch."""
        if self._pending:
            self._at.recent += torch.stack(self._pending).tolist()
            self._pending.clear()

    def _sum_losses(self) -> None:
        """Add the losses of the update that has just been made to the epoch's."""
        self._collect_losses()
        at = self._at
        self._loss = sum(at.recent) / len(at.recent)
        for value in filter(math.isfinite, at.recent):
            at.loss += value
            at.losses += 1
        at.recent = []

    def _finish_epoch(self) -> None:
        """Judge the epoch's weights, keep them if they are among the best, and move to the next epoch."""
        at, settings = self._at, self.settings
        if self._pending or at.recent:
            self._sum_losses()
        begun = time.perf_counter()
        self.model.eval()
        with self._stop.interruptible(), torch.no_grad():
            metrics = self.task.evaluate(self.model)
        self._dev_seconds = time.perf_counter() - begun
        if settings.detect_after is not None and at.update >= settings.detect_after:
            if symptom := learns_nothing(metrics, self.task.floor):
                self._save()
                raise UserError(
                    f"{self.name} {symptom} after {at.update:,} updates: lower training.learning_rate or raise training.warmup, "
                    "or set training.detect_after to null to let it go on"
                )
        self._metrics[at.epoch] = metrics
        if at.epoch in self._selection.best(self._metrics):
            write_tensors(self._weights(at.epoch), state_once(self.model))
        train_loss = at.loss / at.losses if at.losses else math.nan
        self._log.append(
            kind="epoch",
            epoch=at.epoch,
            update=at.update,
            train_loss=train_loss,
            **metrics,
            seconds=round(at.epoch_seconds + self._dev_seconds, 3),
            data_wait=round(at.wait_seconds / max(at.train_seconds, 1e-9), 5),
        )
        shown = ", ".join(f"{k} {v:.4g}" for k, v in metrics.items())
        say(f"{self.name}: epoch {at.epoch}/{settings.epochs} done, train loss {train_loss:.4g}, {shown}")
        at.finished = self._enough() or at.epoch >= settings.epochs
        at.epoch, at.batch, at.loss, at.losses, at.epoch_seconds = at.epoch + 1, 0, 0.0, 0, 0.0
        self._save()
        self._prune()  # after the save: a resume from an older checkpoint may still want a file

    # -- what is said

    def _report(self) -> None:
        at, task = self._at, self.task
        work, seconds = at.work - self._rate_mark[0], at.train_seconds - self._rate_mark[1]
        self._rate_mark = (at.work, at.train_seconds)
        rate = work / max(seconds, 1e-9)
        mfu = rate * task.flops_per_unit / self._flops["value"]
        left = self._time_left()
        self._log.append(
            kind="step",
            epoch=at.epoch,
            update=at.update,
            loss=self._loss,
            lr=self._lr,
            grad_norm=self._norm,
            skipped=at.skipped,
            **{f"{task.unit}_per_s": round(rate, 2)},
            mfu=round(mfu, 4),
            time_left_s=round(left, 1),
        )
        say(
            f"{self.name}: epoch {at.epoch}/{self.settings.epochs} update {at.update:,} loss {self._loss:.4g} lr {self._lr:.3g} "
            f"{rate:,.0f} {task.unit.replace('_', '-')}/s MFU {100 * mfu:.1f} % left {duration(left)}"
        )

    def _time_left(self) -> float:
        """Seconds: updates to come at this attempt's pace, and one dev evaluation an epoch."""
        at, settings = self._at, self.settings
        total = settings.epochs * self._updates_per_epoch
        total = min(total, settings.max_updates) if settings.max_updates else total
        updates, seconds = at.update - self._attempt_mark[0], at.train_seconds - self._attempt_mark[1]
        remaining = max(total - at.update, 0)
        return (
            remaining * seconds / max(updates, 1) + math.ceil(remaining / self._updates_per_epoch) * self._dev_seconds
        )

    def _summary(self) -> Summary:
        at = self._at
        flops = devices.device_flops(self.device)
        rate = at.work / max(at.train_seconds, 1e-9)
        return Summary(
            epochs=at.epoch - 1,
            updates=at.update,
            skipped=at.skipped,
            attempts=at.attempts,
            seconds=at.seconds,
            rate=rate,
            mfu=rate * self.task.flops_per_unit / flops["value"],
            data_wait=at.wait_seconds / max(at.train_seconds, 1e-9),
            device_flops=flops,
            peak_memory=at.peak_memory,
            nondeterministic_ops=self._nondeterministic,
            metrics=self._metrics,
            scores=self.settings.selection.scores(self._metrics),
            best=self.settings.selection.best(self._metrics),
        )

    # -- the state folder

    def _weights(self, epoch: int) -> Path:
        return self.state_dir / checkpoints.LAYOUT.weights.format(epoch)

    def _save(self) -> None:
        at = self._at
        self._collect_losses()
        at.seconds = self._seconds_before + time.perf_counter() - self._begun
        at.peak_memory = max(at.peak_memory, devices.peak_memory(self.device))
        gradients = {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "gradients": gradients,
            "position": dataclasses.asdict(at),
            "metrics": self._metrics,
            "selection": dataclasses.asdict(self._selection),
            "nondeterministic_ops": self._nondeterministic,
            "log_length": self._log.synchronised_length(),
        }
        checkpoints.save_state(self.state_dir, state, self.identity)
        self._saved = time.perf_counter()

    def _restore(self) -> None:
        state, warning = checkpoints.load_state(self.state_dir, self.identity, map_location=self.device)
        if warning:
            say(f"{self.name}: {warning}")
        self._log = Log(self.state_dir / LOG, state["log_length"] if state else 0)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name, parameter in self.model.named_parameters():
            parameter.grad = state["gradients"].get(name)
        self._at = _Position(**state["position"])
        self._metrics = state["metrics"]
        self._nondeterministic = state["nondeterministic_ops"]
        # one that ended after fewer epochs goes on
        self._at.finished &= self.settings.max_updates is not None or self._at.epoch > self.settings.epochs
        if self._at.finished:  # another selection than that of the training has no say in what stays on disk
            self._selection = Selection(**state["selection"])
        if not self._at.finished:
            say(
                f"{self.name}: going on from epoch {self._at.epoch}, batch {self._at.batch}, update {self._at.update:,}"
            )

    def _prune(self) -> None:
        """Remove weights that are not among the best: those overtaken, and those later than the checkpoint resumed."""
        kept = {self._weights(epoch) for epoch in self._selection.best(self._metrics)}
        for path in self.state_dir.glob("epoch-*.safetensors"):
            if path not in kept:
                path.unlink()

    def _try_largest(self) -> None:
        """Run the largest batches, changing nothing: memory that does not suffice is found now, not in epoch 3."""
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        gradients = {name: p.grad for name, p in self.model.named_parameters()}
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train()
        found: set[str] = set(self._nondeterministic)
        for batch in self.task.largest():
            try:
                with devices.nondeterministic_ops() as ops:
                    training_step(self.model, batch, self.settings)
            except (RuntimeError, MemoryError) as error:
                if not devices.out_of_memory(error):
                    raise
                raise UserError(
                    f"{self.name}: the largest batch ({self.task.describe(batch)}) does not fit in the memory of "
                    f"{devices.device_name(self.device)}: {self.task.smaller_batches}"
                ) from None
            finally:
                self.optimizer.zero_grad(set_to_none=True)
            found |= ops
        self._nondeterministic = sorted(found)
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])
        for name, parameter in self.model.named_parameters():
            parameter.grad = gradients[name]
