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

import errno
import math
import time
from contextlib import closing
from pathlib import Path

import torch
from torch import nn

from geomix.errors import UserError
from geomix.training.checkpoints import Identity
from geomix.training.detectors import learns_nothing
from geomix.training.events import EVENTS, WithEvents
from geomix.training.interruption import Stopped, StopSignal
from geomix.training.meter import Meter, Position, Summary, summarise
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.prefetch import prefetch
from geomix.training.progress import say
from geomix.training.schedules import SCHEDULES
from geomix.training.seeding import seed_all
from geomix.training.state import Standing, StateFolder
from geomix.training.step import make_optimizer, training_step, try_largest
from geomix.training.task import Batch, Task


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
        options: TrainerOptions,
        *,
        state_dir: Path,
        identity: Identity,
        seed: int,
        device: torch.device,
        name: str = "the run",
    ) -> None:
        self.model = model.to(device)
        self.task, self.settings, self.options = task, settings, options
        self.device, self.name, self.seed = device, name, seed
        self.optimizer = make_optimizer(self.model, settings, device)
        self._state = StateFolder(Path(state_dir), identity)
        self._standing = Standing(options.selection)
        self._lr, self._norm = 0.0, math.nan  # of the last update

    @property
    def _at(self) -> Position:
        return self._standing.position

    def run(self) -> Summary:
        """Train to the end, from wherever the state folder stands.

        Raises UserError when stopped by a signal (the state is saved), when a detector finds the run lost, when the
        largest batch does not fit, and for whatever is wrong with the state folder.
        """
        with StopSignal() as self._stop:
            self._restore()
            with closing(self._state):
                if not self._at.finished:
                    self._train()
            self._prune()
        standing, selection = self._standing, self.options.selection
        ops = standing.nondeterministic_ops
        return summarise(standing.position, self.task, self.device, standing.metrics, selection, ops)

    def _restore(self) -> None:
        found, warning = self._state.restore(self.model, self.optimizer, self.device)
        if warning:
            say(f"{self.name}: {warning}")
        if found is None:
            return
        self._standing, at = found, found.position
        # one that ended after fewer epochs goes on
        at.finished &= self.settings.max_updates is not None or at.epoch > self.settings.epochs
        if not at.finished:  # of a finished one, another selection has no say in what stays on disk
            found.selection = self.options.selection
            say(f"{self.name}: going on from epoch {at.epoch}, batch {at.batch}, update {at.update:,}")

    def _train(self) -> None:
        try:
            self._at.attempts += 1
            log = self._state.log
            if self.options.tensorboard:
                log = WithEvents(log, self._state.folder / EVENTS, self._at.update)
            self._meter = Meter(self.name, self._at, self.task, self.settings, self.device, log)
            ops = try_largest(self.name, self.model, self.task, self.settings, self.optimizer, self.device)
            self._standing.nondeterministic_ops = sorted(ops.union(self._standing.nondeterministic_ops))
            self._save()
            while not self._at.finished:
                self._epoch()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"{self._state.folder}: the disk is full; the last checkpoint is kept: free some space and run again"
            ) from error
        except Stopped:
            self._save()
            raise UserError(
                f"{self.name}: stopped by {self._stop.name} in epoch {self._at.epoch} after update {self._at.update:,}; "
                f"the state is saved in {self._state.folder}: run again to go on"
            ) from None

    def _epoch(self) -> None:
        at, meter, settings = self._at, self._meter, self.settings
        batches = self.task.batches(at.epoch)
        meter.updates_per_epoch = max(1, len(batches) // settings.accumulation)
        self.model.train()
        meter.start_lap()
        with closing(prefetch(batches, at.batch)) as source:
            while at.batch < len(batches) and not self._enough():
                batch, waited = next(source)
                self._step(batch)
                now = meter.lap(waited)
                updated = at.batch % settings.accumulation == 0
                if updated and (at.update % self.options.log_every == 0 or at.update == 1):
                    meter.report(self._lr, self._norm)
                self._stop.check()
                if now - self._saved > 60 * self.options.save_minutes:
                    self._save()
                    meter.start_lap()
        self._finish_epoch()

    def _enough(self) -> bool:
        return self.settings.max_updates is not None and self._at.update >= self.settings.max_updates

    def _step(self, batch: Batch) -> None:
        """One batch: forward, backward and, at the end of an accumulation, an update."""
        at = self._at
        seed_all(self.seed, "batch", at.epoch, at.batch)
        self._meter.add(training_step(self.model, batch, self.settings), batch.work)
        at.batch += 1
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
                group["lr"] = self._lr * group.get("factor", 1.0)  # none in a state of an earlier version
            self.optimizer.step()
        else:
            at.skipped += 1
            say(
                f"{self.name}: update {at.update:,} skipped, its gradient norm is {self._norm} ({at.skipped:,} skipped so far)"
            )
        self.optimizer.zero_grad(set_to_none=True)
        self._meter.sum_losses()

    def _finish_epoch(self) -> None:
        """Judge the epoch's weights, keep them if they are among the best, and move to the next epoch."""
        at, standing = self._at, self._standing
        self._meter.sum_losses()
        begun = time.perf_counter()
        self.model.eval()
        with self._stop.interruptible(), torch.no_grad():
            metrics = self.task.evaluate(self.model)
        seconds = time.perf_counter() - begun
        self._detect(metrics)
        standing.metrics[at.epoch] = metrics
        if at.epoch in standing.selection.best(standing.metrics):
            self._state.keep(at.epoch, self.model)
        self._meter.report_epoch(metrics, seconds)
        at.finished = self._enough() or at.epoch >= self.settings.epochs
        at.next_epoch()
        self._save()
        self._prune()  # after the save: a resume from an older checkpoint may still want a file

    def _detect(self, metrics: dict[str, float]) -> None:
        """End a run that learns nothing in a sentence."""
        after, update = self.options.detect_after, self._at.update
        if after is None or update < after:
            return
        if symptom := learns_nothing(metrics, self.task.floor):
            self._save()
            raise UserError(
                f"{self.name} {symptom} after {update:,} updates: lower training.learning_rate or raise training.warmup, "
                "or set training.detect_after to null to let it go on"
            )

    def _save(self) -> None:
        self._meter.close()
        self._state.save(self.model, self.optimizer, self._standing)
        self._saved = time.perf_counter()

    def _prune(self) -> None:
        self._state.prune(self._standing.selection.best(self._standing.metrics))
