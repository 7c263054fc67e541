import hashlib

import numpy as np
import pytest
import soundfile
import torch

from geomix.errors import UserError
from geomix.speech.audio import inspect_audio, perturb_speed, read_audio
from geomix.speech.manifest import perturbed_samples

from .corpus_builders import tone


@pytest.fixture
def flac(tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, tone(2.0), 16_000)
    return path


def test_flac_and_wav_of_the_same_samples_have_one_hash(flac, tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(2.0), 16_000)
    expected = (32_000, hashlib.md5(tone(2.0).astype("<i2").tobytes()).hexdigest())
    assert inspect_audio(flac) == inspect_audio(tmp_path / "a.wav") == expected
    assert np.array_equal(read_audio(flac), tone(2.0).astype(np.float32) / 32_768)


@pytest.mark.parametrize("share", [0.98, 0.5, 0.1, 0.0005])
def test_a_truncated_flac_is_found(flac, share):
    content = flac.read_bytes()
    flac.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"a\.flac: .*copy it again"):
        inspect_audio(flac)


@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_damaged_flac_is_found(flac, where):
    content = bytearray(flac.read_bytes())
    position = int(len(content) * where)
    content[position : position + 8] = b"geometry"
    flac.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.flac: .*copy it again"):
        inspect_audio(flac)


def test_a_flac_whose_samples_are_not_its_headers_is_found(flac):
    """Every frame decodes and the count is right, but the MD5 in STREAMINFO (bytes 26 to 41) is of other samples."""
    content = bytearray(flac.read_bytes())
    content[30] ^= 1
    flac.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.flac: the decoded samples do not have the MD5"):
        inspect_audio(flac)


def test_other_rates_stereo_and_missing_files_are_refused(tmp_path):
    soundfile.write(tmp_path / "fast.flac", tone(1.0, rate=22_050), 22_050)
    soundfile.write(tmp_path / "stereo.flac", np.stack([tone(1.0)] * 2, 1), 16_000)
    with pytest.raises(UserError, match=r"fast\.flac: the sample rate is 22050 Hz: resample it to 16000 Hz"):
        read_audio(tmp_path / "fast.flac")
    with pytest.raises(UserError, match=r"stereo\.flac: it has 2 channels: mix it down"):
        read_audio(tmp_path / "stereo.flac")
    with pytest.raises(UserError, match=r"none\.flac: no such audio file"):
        read_audio(tmp_path / "none.flac")


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_speed_moves_tempo_and_pitch_together(factor):
    waveform = torch.from_numpy(tone(2.0, 1_000.0).astype(np.float32))
    changed = perturb_speed(waveform, factor)
    assert len(changed) == int(np.ceil(32_000 / factor))
    spectrum = np.abs(np.fft.rfft(changed.numpy() * np.hanning(len(changed))))
    assert spectrum.argmax() * 16_000 / len(changed) == pytest.approx(1_000 * factor, abs=1)
    assert perturb_speed(waveform, 1.0) is waveform


def test_length_after_perturbation_is_exact_for_minutes():
    """10/9 of 4,500,001 samples is 5,000,001.1; in float32 the fraction is lost."""
    assert len(perturb_speed(torch.zeros(4_500_001), 0.9)) == perturbed_samples(4_500_001, 0.9) == 5_000_002
