import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from geomix.errors import UserError
from geomix.speech.audio import perturb_speed, read_audio
from geomix.speech.features import (
    FeatureStore,
    frames_of,
    global_mean_variance,
    log_mel,
    mel_filters,
    read_normalisation,
    write_features,
    write_normalisation,
)
from geomix.speech.manifest import Utterance

from .corpus_builders import tone

GOLDEN = np.load(Path(__file__).parent / "golden" / "features.npz")


# ---- against ESPnet 202611 (golden/make_features.py)


def bound(golden):
    """1e-5, and more where a band is so far below the loudest of its frame that fp32 rounding of the transform, which differs between
    processors, shows in its logarithm: the error of an amplitude is that of the loudest one."""
    return 1e-5 + 2e-7 * np.exp((golden.max(-1, keepdims=True) - golden) / 2)


@pytest.mark.parametrize("name", ["sweep", "short"])
def test_features_are_espnets(name):
    waveform = GOLDEN[f"{name}_samples"].astype(np.float32) / 32_768
    features = log_mel(waveform)
    assert features.dtype == np.float32
    assert features.shape == GOLDEN[f"{name}_features"].shape == (len(waveform) // 160 + 1, 80)
    golden = GOLDEN[f"{name}_features"]
    assert (np.abs(features - golden) < bound(golden)).all()
    assert np.quantile(np.abs(features - golden), 0.9) < 1e-5


def test_normalisation_is_espnets(tmp_path):
    utterances = [
        Utterance(name, "a", str(tmp_path / f"{name}.flac"), len(GOLDEN[f"{name}_samples"]), 1.0, "A")
        for name in ("sweep", "short")
    ]
    for utterance in utterances:
        soundfile.write(utterance.path, GOLDEN[f"{utterance.id}_samples"], 16_000)
    write_features(utterances, tmp_path / "train-sp1.0", progress=False)
    store = FeatureStore.open(tmp_path / "train-sp1.0")
    mean, std = global_mean_variance(store)
    assert np.abs(mean - GOLDEN["mean"]).max() < 1e-5
    assert np.abs(std - GOLDEN["std"]).max() < 1e-5
    assert (np.abs((store["sweep"] - mean) / std - GOLDEN["sweep_normalised"]) < bound(GOLDEN["sweep_features"])).all()
    write_normalisation(tmp_path / "normalisation.json", store)
    for found, expected in zip(read_normalisation(tmp_path / "normalisation.json"), (mean, std), strict=True):
        assert np.array_equal(found, expected) and found.dtype == np.float32


# ---- against the definition


def test_features_are_their_definition():
    """A loop over frames and a Fourier matrix, in float64."""
    waveform = np.random.default_rng(0).standard_normal(2_001) * 0.1
    padded = np.pad(waveform, 256, mode="reflect")
    window = np.zeros(512)
    window[56:456] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(257), np.arange(512)) / 512)
    expected = []
    for start in range(0, len(padded) - 511, 160):
        power = np.abs(fourier @ (window * padded[start : start + 512])) ** 2
        expected.append(np.log(np.maximum(power @ mel_filters(), 1e-10)))
    features = log_mel(waveform)
    assert features.dtype == np.float64
    assert features.shape == (frames_of(2_001), 80) == np.shape(expected)
    assert np.abs(features - expected).max() < 1e-10


def test_mel_filters_are_slaneys():
    """Slaney's scale: 1 kHz is mel 15, linear below, 27 mels for each factor of 6.4 above; triangles of equal area."""
    filters = mel_filters()
    peaks = filters.argmax(0) * 16_000 / 512
    top = 15 + 27 * np.log(8) / np.log(6.4)
    mels = np.arange(1, 81) * top / 81
    centres = np.where(mels < 15, mels * 200 / 3, 1_000 * 6.4 ** ((mels - 15) / 27))
    assert np.abs(peaks - centres).max() <= 16_000 / 512
    areas = filters.sum(0) * 16_000 / 512
    assert np.abs(areas[40:] - 1).max() < 0.1  # wide filters; narrow ones are sampled at one or two bins


def test_a_batch_is_its_rows_and_silence_is_the_floor():
    waveforms = torch.randn(3, 2, 4_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = log_mel(waveforms)
    assert batch.shape == (3, 2, 26, 80)
    assert torch.allclose(batch[1, 0], log_mel(waveforms[1, 0]), atol=1e-10)
    assert np.all(log_mel(np.zeros(1_600, np.float32)) == np.float32(np.log(np.float32(1e-10))))


def test_a_waveform_too_short_for_the_reflection_is_refused():
    assert log_mel(np.ones(257, np.float32)).shape == (2, 80)
    with pytest.raises(UserError, match="256 samples is too short"):
        log_mel(np.ones(256, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e25])
def test_features_that_are_not_finite_are_refused(value):
    """To a model NaN is a number like another: it would come back as silence."""
    waveform = np.full(1_600, 0.1, np.float32)
    waveform[800] = value
    with pytest.raises(UserError, match="has no finite features"):
        log_mel(waveform)
    assert np.isfinite(log_mel(np.full(1_600, 2.0**31, np.float32))).all(), "full scale of 32-bit integers"


# ---- the store


@pytest.fixture
def utterances(tmp_path):
    made = []
    for number, seconds in enumerate([0.5, 1.0, 0.103, 0.77]):
        path = tmp_path / f"{number}.flac"
        samples = tone(seconds, 300 + 100 * number)
        soundfile.write(path, samples, 16_000)
        made.append(Utterance(f"a-{9 - number}", "a", str(path), len(samples), 1.0, "A"))
    return made


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("threads", [1, 3])
def test_store_gives_each_utterances_features_at_its_speed(utterances, tmp_path, factor, threads):
    copies = [u.at_speed(factor) for u in utterances]
    prefix = tmp_path / "features" / f"train-sp{factor}"
    torch.set_num_threads(1)  # as each thread of the store; two would share a product out differently
    write_features(copies, prefix, threads=threads, progress=False)
    assert {path.name for path in prefix.parent.iterdir()} == {f"{prefix.name}.f32", f"{prefix.name}.index.tsv"}
    store = FeatureStore.open(prefix)
    assert list(store) == sorted(u.id for u in copies) and len(store) == 4
    for copy in copies:
        waveform = perturb_speed(torch.from_numpy(read_audio(copy.path)), factor)
        assert store.lengths[copy.id] == len(store[copy.id]) == len(waveform) // 160 + 1
        assert np.array_equal(store[copy.id], log_mel(waveform).numpy())


def test_half_precision_halves_the_disk(utterances, tmp_path):
    write_features(utterances, tmp_path / "full", progress=False)
    write_features(utterances, tmp_path / "half", dtype="float16", progress=False)
    full, half = FeatureStore.open(tmp_path / "full"), FeatureStore.open(tmp_path / "half")
    assert (tmp_path / "half.f16").stat().st_size * 2 == (tmp_path / "full.f32").stat().st_size
    for utterance_id in full:
        assert half[utterance_id].dtype == np.float16
        assert np.abs(half[utterance_id].astype(np.float32) - full[utterance_id]).max() <= 2**-7
    with pytest.raises(UserError, match="feature_dtype int8"):
        write_features(utterances, tmp_path / "byte", dtype="int8", progress=False)


def test_several_stores_as_one_and_pickled(utterances, tmp_path):
    for factor in (0.9, 1.0):
        write_features([u.at_speed(factor) for u in utterances], tmp_path / f"sp{factor}", progress=False)
    both = FeatureStore.open(tmp_path / "sp0.9", tmp_path / "sp1.0")
    assert len(both) == 8 and "sp0.9-a-7" in both and "a-7" in both and "b" not in both
    parts = [FeatureStore.open(tmp_path / f"sp{factor}") for factor in (0.9, 1.0)]
    for part in parts:
        assert all(np.array_equal(both[i], part[i]) for i in part)
    frames = np.concatenate([part[i] for part in parts for i in part]).astype(np.float64)
    for found in (global_mean_variance(both), global_mean_variance(parts)):
        assert np.allclose(found[0], frames.mean(0), atol=1e-6) and np.allclose(found[1], frames.std(0), atol=1e-6)
    content = pickle.dumps(both)
    assert len(content) < 5_000, "the frames do not travel"
    assert np.array_equal(pickle.loads(content)["a-7"], both["a-7"])
    with pytest.raises(UserError, match="utterance a-6 is in another opened store"):
        FeatureStore.open(tmp_path / "sp1.0", tmp_path / "sp1.0")


def test_audio_that_changed_since_preparation_is_named(utterances, tmp_path):
    write_features(utterances, tmp_path / "train", progress=False)
    soundfile.write(utterances[1].path, tone(0.9), 16_000)
    with pytest.raises(UserError, match=r"1\.flac: 14400 samples at speed 1\.0, 16000 in the manifest"):
        write_features(utterances, tmp_path / "train", progress=False)
    assert not (tmp_path / "train.index.tsv").exists(), "no index, no store"
    with pytest.raises(UserError, match="no such features"):
        FeatureStore.open(tmp_path / "train")


def test_audio_without_features_is_named_with_its_utterance(utterances, tmp_path):
    """Too short, not finite, too large: whichever it is, file and id stand in the sentence."""
    path = utterances[2].path
    short = Utterance("a-short", "a", path, 256, 1.0, "A")
    soundfile.write(path, tone(1.0)[:256], 16_000)
    with pytest.raises(UserError, match=r"2\.flac: utterance a-short: a waveform of 256 samples is too short"):
        write_features([short], tmp_path / "train", progress=False)
    loud = tmp_path / "loud.wav"
    soundfile.write(loud, np.full(1_600, np.inf, np.float32), 16_000, subtype="FLOAT")
    with pytest.raises(UserError, match=r"loud\.wav: sample 0 \(at 0\.0000 s\) is inf"):
        write_features([Utterance("a", "a", str(loud), 1_600, 1.0, "A")], tmp_path / "train", progress=False)


def test_a_cut_store_is_named(utterances, tmp_path):
    write_features(utterances, tmp_path / "train", progress=False)
    content = (tmp_path / "train.f32").read_bytes()
    (tmp_path / "train.f32").write_bytes(content[:-4])
    with pytest.raises(UserError, match=r"train\.f32: does not hold the .* frames of its index"):
        FeatureStore.open(tmp_path / "train")


def test_progress_line(utterances, tmp_path, capsys):
    write_features(utterances, tmp_path / "train")
    assert "features train: 4/4 utterances" in capsys.readouterr().err


def test_an_empty_training_set_has_no_mean(tmp_path):
    write_features([], tmp_path / "none", progress=False)
    with pytest.raises(UserError, match="no frame"):
        global_mean_variance(FeatureStore.open(tmp_path / "none"))


def test_features_first_computed_in_inference_serve_a_gradient():
    waveform = torch.from_numpy(tone(0.1, 300)).float()
    with torch.inference_mode():
        log_mel(waveform.clone(), n_mels=23)
    log_mel(waveform.requires_grad_(), n_mels=23).sum().backward()
    assert waveform.grad.abs().sum() > 0
