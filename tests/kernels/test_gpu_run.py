"""`python3 -m tests.gpu` without a GPU: its checks, its files, its status, and what it needs to be installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu import __main__ as gpu
from tests.gpu import report, training, values

ROOT = Path(__file__).resolve().parents[2]
# everything of requirements.txt but torch, numpy and PyYAML
ABSENT = (
    "safetensors", "soundfile", "torchaudio", "sentencepiece", "pydantic", "matplotlib", "scipy", "pandas", "snakemake",
    "tokenizers", "jinja2", "kaldialign", "llvmlite", "pytest",
)  # fmt: skip


def run(tmp_path, *arguments):
    status = gpu.main(["--device", "cpu", "--quick", "--out", str(tmp_path), *arguments])
    (file,) = tmp_path.glob("*/gpu_test.json")
    return status, json.loads(file.read_text()), file.with_suffix(".md").read_text()


def test_every_part_that_needs_no_gpu_passes_on_the_processor(tmp_path, capsys):
    status, found, table = run(tmp_path)
    assert status == 0 and found["failed"] == 0 and found["checks"] > 100
    assert set(found["seconds"]) == {
        "product",
        "mixer",
        "strides",
        "others",
        "wide",
        "step",
        "training",
        "speed",
        "all",
    }
    assert {row["part"] for row in found["rows"]} >= {
        "product",
        "pair mixer",
        "strides",
        "compile",
        "training step",
        "speed",
    }
    for arm in training.ARMS:
        assert any(row["case"].startswith(f"{arm}:") for row in found["rows"])
    measured = [row for row in found["rows"] if row["gb_per_s"] is not None]
    assert len(measured) > 15 and all(row["gb_per_s"] > 0 for row in measured)
    assert f"{found['checks']} checks, 0 failed" in table and found["torch"] == torch.__version__


def test_a_wrong_kernel_is_found_and_the_other_parts_go_on(tmp_path, capsys, monkeypatch):
    real = values.product
    monkeypatch.setattr(values, "product", lambda *x, **y: real(*x, **y) * 1.001)

    def stops(device):
        raise RuntimeError("out of luck")
        yield

    monkeypatch.setattr(values, "others", stops)
    status, found, table = run(tmp_path, "--parts", "others", "product", "wide")
    failed = [row for row in found["rows"] if not row["ok"]]
    assert status == 1 and found["failed"] == len(failed) > 10
    assert failed[0]["note"] == "RuntimeError: out of luck" and {row["part"] for row in failed} == {"others", "product"}
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "limit", "ok"), [(1e-6, 1e-5, True), (1e-4, 1e-5, False), (float("nan"), 1.0, False), (None, 1.0, False)]
)
def test_a_row_is_fine_only_with_a_number_within_its_limit(error, limit, ok):
    assert report.Row("a", "b", error, limit).ok is ok


def test_an_error_of_values_that_are_no_numbers_is_infinite():
    one = torch.ones(3)
    assert values.relative(one / 0, one) == float("inf") == values.relative(one * torch.nan, one)
    assert values.relative(one, one) == 0 and values.relative(one.float() * 1.5, one) == 0.5


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path, capsys):
    assert gpu.main(["--out", str(tmp_path)]) == 1
    assert "shows no CUDA device" in capsys.readouterr().err and not any(tmp_path.iterdir())


def test_it_needs_torch_numpy_and_yaml_alone(tmp_path):
    code = (
        f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\n"
        "from tests.gpu.__main__ import main\n"
        f"sys.exit(main(['--device', 'cpu', '--quick', '--out', {str(tmp_path)!r}, '--parts', 'others', 'strides', 'step']))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT / "src")}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
