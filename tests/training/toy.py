"""A small regression with dropout and batch norm, as a task that the training loop can train in milliseconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import torch
from torch import nn

from geomix.training.averaging import Selection
from geomix.training.checkpoints import Identity
from geomix.training.loop import Trainer
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.seeding import generator, seed_all
from geomix.training.task import Batch

SETTINGS = dict(
    epochs=3,
    max_updates=None,
    accumulation=3,
    optimizer="adam",
    learning_rate=0.01,
    learning_rate_by_grade=[],
    weight_decay=1e-6,
    schedule="warmup",
    warmup=4,
    clip=5.0,
    precision="fp32",
)
ROOM = Selection(2, "dev_loss")


class Model(nn.Module):
    def __init__(self, seed: int = 0):
        seed_all(seed, "initial weights")
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))

    def forward(self, x, y):
        return {"loss": (self.layers(x).squeeze(1) - y).square().mean()}


class Task:
    """Ten batches an epoch (three updates of three, one left over); `spoil(epoch, batch, inputs)` may change or delay
    them.
    """

    unit, flops_per_unit, floor = "items", 1000.0, None
    size, smaller_batches = "ten batches", "lower batch_size"

    def __init__(self, seed: int = 0, spoil: Callable | None = None, metrics: dict | None = None, count: int = 10):
        self.seed, self.spoil, self.metrics, self.count = seed, spoil, metrics, count
        self.made: list[tuple[int, int]] = []

    def batches(self, epoch):
        task = self

        class Epoch:
            def __len__(self):
                return task.count

            def __getitem__(self, index):
                return task.make(epoch, index)

        return Epoch()

    def make(self, epoch, index):
        self.made.append((epoch, index))
        draw = generator(self.seed, epoch, index)
        x = torch.randn(8, 5, generator=draw)
        inputs = {"x": x, "y": x.sum(1) + 0.1 * torch.randn(8, generator=draw)}
        if self.spoil:
            self.spoil(epoch, index, inputs)
        return Batch(inputs, work=8.0)

    def largest(self):
        draw = generator(self.seed, "largest")
        return [Batch({"x": 100 * torch.randn(64, 5, generator=draw), "y": torch.zeros(64)}, 64.0)]

    def describe(self, batch):
        return f"{len(batch.inputs['y'])} items"

    def evaluate(self, model):
        draw = generator("dev")
        x = torch.randn(50, 5, generator=draw)
        return {"dev_loss": float(model(x, x.sum(1))["loss"]), **(self.metrics or {})}


def trainer(
    folder, task=None, seed=0, identity=None, selection=ROOM, detect_after=None, save_minutes=10.0, **settings
) -> Trainer:
    return Trainer(
        Model(seed),
        task or Task(seed),
        TrainingSettings.from_dict({**SETTINGS, **settings}),
        TrainerOptions(selection, detect_after, save_minutes, log_every=1),
        state_dir=folder,
        identity=identity or Identity(f"toy {seed}", {"seed": seed, "training": {"learning_rate": 0.01}}),
        seed=seed,
        device=torch.device("cpu"),
        name="toy",
    )


def terminate_at(epoch: int, batch: int) -> Callable:
    """A spoiler that sends this process SIGTERM while that batch is being made, once."""
    sent = []

    def spoil(e, b, inputs):
        if (e, b) == (epoch, batch) and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)

    return spoil
