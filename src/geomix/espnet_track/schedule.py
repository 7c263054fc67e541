"""Schedules of ours that ESPnet does not have, as a scheduler of its: entered among its choices at run time.

Needs ESPnet. The recipe's own schedule is ESPnet's `warmuplr` and not this.
"""

from __future__ import annotations

import espnet2.tasks.abs_task as abs_task
import torch
from espnet2.schedulers.abs_scheduler import AbsBatchStepScheduler

from geomix.espnet_track.settings import SCHEDULER
from geomix.training.schedules import SCHEDULES


class GeomixSchedule(torch.optim.lr_scheduler.LRScheduler, AbsBatchStepScheduler):
    """`geomix.training.schedules.SCHEDULES[schedule]`, stepped once an update.

    updates : updates of an epoch, from which the epoch of a step follows.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: str,
        warmup: int,
        epochs: int,
        updates: int,
        last_epoch: int = -1,
    ) -> None:
        self.schedule, self.warmup, self.epochs, self.updates = schedule, warmup, epochs, updates
        super().__init__(optimizer, last_epoch)  # makes the first step: the fields above are read in it

    def get_lr(self) -> list[float]:
        """Rates of the update to come."""
        step = self.last_epoch + 1
        epoch = min(self.last_epoch // self.updates + 1, self.epochs)
        return [SCHEDULES[self.schedule](step, epoch, peak, self.warmup, self.epochs) for peak in self.base_lrs]


def register() -> None:
    """Enter `GeomixSchedule` among ESPnet's schedulers, in this process; twice does no harm."""
    abs_task.scheduler_classes[SCHEDULER] = GeomixSchedule
