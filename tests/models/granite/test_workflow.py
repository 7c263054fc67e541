"""Rules granite_decode, granite_ctc, granite_score and granite_table on a tiny checkpoint, through to rows marked as references."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from geomix.speech.manifest import read_manifest
from tests.models.granite.tiny_checkpoint import make_checkpoint

ROOT = Path(__file__).resolve().parents[3]


def snakemake(folder, *arguments):
    command = [sys.executable, "-m", "snakemake", "granite", "--directory", str(folder), "--cores", "1", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=3600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.workflow
def test_a_checkpoint_becomes_reference_rows(tmp_path):
    """The smoke corpus of four sentences; the checkpoint's weights are random, so its rate says nothing."""
    make_checkpoint(tmp_path / "checkpoints" / "tiny-speech")
    overlay = yaml.safe_load((ROOT / "config" / "smoke.yaml").read_text())
    overlay["granite"] = {
        "checkpoints": {"tiny-speech": {"path": "checkpoints/tiny-speech", "heads": ["decode", "ctc"], "decode": {"beams": 2}}},
        "decode": {"max_new_tokens": 6, "batch": 8},
        "ctc": {"batch": 8},
        "normaliser": "letters",
        "device": "cpu",
        "threads": 1,
    }  # fmt: skip
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(overlay))
    arguments = ["--configfile", str(ROOT / "config.yaml"), str(tmp_path / "overlay.yaml")]
    done = snakemake(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]

    results = tmp_path / "results" / "smoke" / "granite"
    with open(results / "tables.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["track"], row["arm"], row["set"]) for row in rows] == [
        ("granite", "tiny-speech", "test"),
        ("granite", "tiny-speech-ctc", "test"),
    ]
    (path,) = tmp_path.glob("data/smoke/test-*/manifest/test.tsv")
    manifest = read_manifest(path)
    words = sum(len(utterance.text.split()) for utterance in manifest)
    for row, head in zip(rows, ("decode", "ctc"), strict=True):
        assert row["note"] == f"reference: published checkpoint, not trained here; normaliser letters; {head} head"
        assert int(row["words"]) == words and float(row["wer"]) > 0
        assert float(row["wer_low"]) <= float(row["wer"]) <= float(row["wer_high"])
    table = (results / "tables.md").read_text()
    assert "Reference rows" in table and "| tiny-speech-ctc | test |" in table
    text = (results / "tiny-speech" / "seed0" / "hyp" / "test" / "text").read_text()
    assert [line.split(" ")[0] for line in text.splitlines()] == [utterance.id for utterance in manifest]
    assert any(len(line.split(" ")) > 1 for line in text.splitlines())
    record = yaml.safe_load((results / "tiny-speech" / "seed0" / "record.json").read_text())
    assert record["reference"] and record["settings"]["beams"] == 2 and "<|audio|>" in record["prompt"]
    assert {"model.safetensors", "adapter_model.safetensors", "tokenizer.json"} <= set(record["checkpoint"])

    again = snakemake(tmp_path, *arguments, "--dry-run")
    assert "Nothing to be done" in again.stdout + again.stderr

    # an absent folder ends in a sentence, and leaves no partial output
    overlay["granite"]["checkpoints"] = {"absent": {"path": "checkpoints/absent", "heads": ["ctc"]}}
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(overlay))
    failed = snakemake(tmp_path, *arguments)
    assert failed.returncode != 0
    log = (tmp_path / "logs" / "smoke" / "granite" / "absent-ctc" / "ctc.log").read_text()
    assert "checkpoints/absent: no such folder: put a Granite Speech checkpoint there" in log and "Traceback" not in log
    assert not (results / "absent-ctc" / "seed0").exists()
