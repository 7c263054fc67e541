"""The device: choice, measurement, and which operations are not deterministic."""

import pytest
import torch

from geomix.errors import UserError
from geomix.training.devices import choose_device, device_flops, nondeterministic_ops, out_of_memory, peak_memory


def test_choice_of_device():
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else choose_device("auto").type)
    with pytest.raises(UserError, match="device 'gpu' is unknown"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="device 'cuda' is not on this machine"):
            choose_device("cuda")


def test_measured_rate_and_memory_are_plausible():
    rate = device_flops(torch.device("cpu"))
    assert rate["source"] == "measured" and rate["dtype"] == "float32"
    assert 1e9 < rate["value"] < 1e14
    before = peak_memory(torch.device("cpu"))
    block = torch.ones(30_000_000)
    assert peak_memory(torch.device("cpu")) >= before > 50e6
    assert peak_memory(torch.device("cpu")) >= block.nbytes


def test_nondeterministic_operations_are_named_by_torch_itself():
    with nondeterministic_ops() as found:
        torch.zeros(3).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]))  # which value stays is undefined
        torch.ones(3) @ torch.ones(3)
    assert found == {"put_"}
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_cpus_words_for_a_full_memory_are_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert out_of_memory(caught.value)
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
