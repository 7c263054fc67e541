"""keep_freed_memory: a step's tensors are not faulted in again."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from geomix.kernels.host_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
step = lambda: torch.ones(12_000_000).sum()  # 48 MB, 11,700 pages
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_tensors_stay_in_the_process():
    faults = {
        way: int(subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True, check=True).stdout)
        for way in ("default", "keep")
    }
    assert faults["keep"] < 100 < faults["default"]
