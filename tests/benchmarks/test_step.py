"""The benchmark of a training step: its numbers belong together, and its utterances are as long as LibriSpeech's."""

import numpy as np
import pytest

from geomix.benchmarks.step import COLUMNS, Options, measure_arm, synthetic_corpus
from geomix.models.arms import arm_config
from geomix.models.flops import train_flops_per_audio_second
from geomix.settings import load


@pytest.mark.parametrize("overlays,arm", [(["smoke"], "grassmann"), (["demo", "granite_encoder"], "granite")])
def test_measurements_belong_together(overlays, arm):
    config = load(*(f"config/{name}.yaml" for name in overlays))
    row = measure_arm(config, arm, Options(steps=2, batch_bins=300_000, device="cpu"))
    assert row["ms_per_batch"] * row["audio_seconds_per_second"] == pytest.approx(1000 * row["audio_seconds_per_batch"])
    flops = train_flops_per_audio_second(arm_config(config, arm, vocab=config["tokenizer"]["size"] or 100))
    assert row["tflops"] * 1e12 == pytest.approx(flops * row["audio_seconds_per_second"])
    assert 0 < row["mfu_percent"] < 100 and row["peak_gb"] > 0.1
    assert row["audio_seconds_per_batch"] > 300_000 / 16_000 / 4
    for _, width, form in COLUMNS:
        assert len(form.format(**row)) < width


def test_synthetic_lengths_are_those_of_train_clean_100():
    """Mean 12.7 s, longest 24.5 s (LibriSpeech, Panayotov et al. 2015: 100.6 h in 28,539 utterances)."""
    examples, store = synthetic_corpus(5000, hours=20)
    seconds = np.array([e.samples for e in examples]) / 16_000
    assert abs(seconds.mean() - 100.6 * 3600 / 28_539) < 0.4
    assert seconds.max() <= 24.5
    assert all(len(store[e.id]) == e.frames for e in examples[:50])
