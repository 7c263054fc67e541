"""How fast this machine trains: what plans and first configurations reckon with before anything was measured."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from geomix.training.cpu import cpu_name, matrix_flops

# shares of the matrix-product rate that a training of a Conformer reaches: on a GPU, toolkits on an A100 (2,641 to 5,282
# audio-seconds per second); on a CPU, the smallest and the full model here (results/published/bench)
GPU_UTILISATION = (0.053, 0.105)
CPU_UTILISATION = (0.1, 0.6)


@dataclass(frozen=True)
class Machine:
    """A device: its name, its matrix-product rate in FLOP/s for one training, and the share of it that a training reaches (low, high)."""

    name: str
    flops: float
    utilisation: tuple[float, float]
    gpu: bool

    def hours(self, work: float) -> tuple[float, float]:
        """(shortest, longest) time of `work` FLOPs in hours."""
        low, high = self.utilisation
        return work / (high * self.flops) / 3600, work / (low * self.flops) / 3600


def this_machine(threads: int = 1) -> Machine:
    """The device that `training.device: auto` takes here; a CPU's rate is measured. torch is loaded only beside an NVIDIA driver."""
    if shutil.which("nvidia-smi"):
        from geomix.training import devices

        device = devices.choose_device("auto")
        if device.type == "cuda":
            return Machine(devices.device_name(device), devices.device_flops(device)["value"], GPU_UTILISATION, True)
    return Machine(cpu_name(), matrix_flops(threads), CPU_UTILISATION, False)
