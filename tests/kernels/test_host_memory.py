"""keep_freed_memory: a training step's tensors are not faulted in again."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from geomix.kernels.host_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
front = torch.nn.Sequential(torch.nn.Conv2d(1, 64, 3, 2), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, 2))
x = torch.randn(4, 1, 600, 80)
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    front(x).square().sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)  # of the last step
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_tensors_stay_in_the_process():
    faults = {
        way: int(subprocess.check_output([sys.executable, "-c", FAULTS, way], text=True)) for way in ("default", "keep")
    }
    assert faults["default"] > 2000 and faults["keep"] < faults["default"] / 10
