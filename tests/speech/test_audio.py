import hashlib
import struct

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
    samples = tone(2.0).astype(np.float32) / 32_768
    expected = (32_000, hashlib.sha256(samples.tobytes()).hexdigest())
    assert inspect_audio(flac) == inspect_audio(tmp_path / "a.wav") == expected
    assert np.array_equal(read_audio(flac), samples)


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


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
def test_a_flac_whose_samples_are_not_its_headers_is_found(flac, subtype):
    """Every frame decodes and the count is right, but the MD5 in STREAMINFO (bytes 26 to 41) is of other samples."""
    soundfile.write(flac, tone(2.0) / 32_768 + 1e-6, 16_000, subtype=subtype)
    assert inspect_audio(flac)[0] == 32_000
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


# ---- what a header promises and what the file holds

FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "u8.wav": ("WAV", "PCM_U8"),
    "float.wav": ("WAV", "FLOAT"),
    "wavex": ("WAVEX", "PCM_24"),
    "rf64": ("RF64", "PCM_16"),
    "aiff": ("AIFF", "PCM_16"),
    "sph": ("NIST", "PCM_16"),
    "ulaw.sph": ("NIST", "ULAW"),
    "au": ("AU", "PCM_16"),
    "caf": ("CAF", "PCM_16"),
    "w64": ("W64", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "24.flac": ("FLAC", "PCM_24"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_with_fewer_samples_than_its_header_says_is_refused(tmp_path, name):
    """libsndfile lowers the count to what it finds; an interrupted copy would pass for a short recording."""
    path = tmp_path / f"a.{name}"
    form, subtype = FORMATS[name]
    soundfile.write(path, tone(1.0), 16_000, format=form, subtype=subtype)
    content = path.read_bytes()
    assert inspect_audio(path)[0] == len(read_audio(path)) == 16_000
    for size in (int(len(content) * 0.97), len(content) // 2, len(content) // 10, 20):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match=rf"a\.{name}: .*copy it again") as error:
            read_audio(path)
        assert "\n" not in str(error.value)


def patched(path, *fields):
    """Overwrite numbers of a file: (offset, struct format, value) each."""
    content = bytearray(path.read_bytes())
    for offset, form, value in fields:
        struct.pack_into(form, content, offset, value)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("riff", "data"),
    [
        (0, 0),
        (36, 0),  # a recorder that was killed
        (0xFFFFFFFF, 0xFFFFFFFF),  # ffmpeg
        (0x7FFFF024, 0x7FFFF000),  # sox, espeak-ng
        (0x80000024, 0x80000000),  # arecord
        (0x7FFF0024, 0x7FFF0000),  # GStreamer
    ],
)
def test_a_wav_that_was_written_into_a_pipe_is_read_to_its_end(tmp_path, riff, data):
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(1.0), 16_000)
    assert path.read_bytes()[36:40] == b"data"
    patched(path, (4, "<I", riff), (40, "<I", data))
    assert np.array_equal(read_audio(path) * 32_768, tone(1.0))


@pytest.mark.parametrize("name", ["aiff", "aiff of sox", "au", "caf", "w64", "rf64", "sph"])
def test_other_files_that_were_written_into_a_pipe_are_read_to_their_end(tmp_path, name):
    form = {"sph": "NIST"}.get(name, name.split()[0].upper())
    path = tmp_path / "a"
    soundfile.write(path, tone(1.0), 16_000, format=form, subtype="PCM_16")
    content = path.read_bytes()
    at = {chunk: content.find(chunk) for chunk in (b"COMM", b"SSND", b"data", b"ds64")}
    fields = {
        "aiff": [(4, ">I", 0), (at[b"COMM"] + 10, ">I", 0), (at[b"SSND"] + 4, ">I", 0)],
        "aiff of sox": [(at[b"COMM"] + 10, ">I", 0x3F800000), (at[b"SSND"] + 4, ">I", 0x7F000008)],
        "au": [(8, ">I", 0xFFFFFFFF)],
        "caf": [(at[b"data"] + 4, ">q", -1)],
        "w64": [(16, "<Q", 0), (at[b"data"] + 16, "<Q", 24)],
        "rf64": [(at[b"ds64"] + 8, "<Q", 0), (at[b"ds64"] + 16, "<Q", 0)],
    }.get(name, [])
    patched(path, *fields)
    if name == "sph":
        path.write_bytes(content.replace(b"sample_count -i 16000", b"sample_count -i 0    "))
    assert path.read_bytes() != content
    assert np.array_equal(read_audio(path) * 32_768, tone(1.0))


def test_a_flac_without_a_stated_length_is_read_to_its_end(flac):
    """flac - < PIPE > FILE leaves the number of samples and the MD5 at 0."""
    content = bytearray(flac.read_bytes())
    content[21] &= 0xF0
    content[22:42] = bytes(20)
    flac.write_bytes(content)
    assert np.array_equal(read_audio(flac) * 32_768, tone(2.0))
    flac.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"a\.flac: cannot be decoded"):
        read_audio(flac)


def test_what_follows_the_samples_is_no_sample(flac, tmp_path):
    wav, empty = tmp_path / "a.wav", tmp_path / "empty.wav"
    soundfile.write(wav, tone(2.0), 16_000)
    for path in (flac, wav):
        path.write_bytes(path.read_bytes() + b"TAG" + b"title".ljust(125))  # an ID3 tag
        assert np.array_equal(read_audio(path) * 32_768, tone(2.0))
    soundfile.write(empty, tone(0.0), 16_000)
    assert len(read_audio(empty)) == 0
    empty.write_bytes(empty.read_bytes() + b"LIST" + struct.pack("<I", 4) + b"INFO")
    assert len(read_audio(empty)) == 0, "a size of 0 before another chunk is no placeholder"


@pytest.mark.parametrize("content", [b"", b"RIFF\0\0\0\0WAVE", b"OggS", b"NIST_1A\n", b"fLaC", b"noise" * 100])
def test_what_is_no_recording_is_named(tmp_path, content):
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.wav: .*copy it again"):
        read_audio(path)
    with pytest.raises(UserError, match=f"{tmp_path}: cannot be decoded"):
        read_audio(tmp_path)


def test_a_damaged_ogg_page_is_found(tmp_path):
    path = tmp_path / "a.ogg"
    soundfile.write(path, tone(4.0), 16_000)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.ogg: an Ogg page is cut or damaged"):
        read_audio(path)
    last = bytes(content).rindex(b"OggS")
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:last])
    with pytest.raises(UserError, match=r"a\.ogg: its last Ogg page is missing"):
        read_audio(path)


# ---- the fingerprint is of what training reads


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_the_digest_is_of_the_samples_as_they_are_read(tmp_path, subtype):
    """16-bit integers of a float file are 0 below 0.5, and a 24-bit file's low bits are lost."""
    draw, found = np.random.default_rng(0), set()
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", 0.1 * draw.standard_normal(4_000), 16_000, subtype=subtype)
        samples, digest = inspect_audio(tmp_path / f"{name}.wav")
        assert (samples, digest) == (4_000, hashlib.sha256(read_audio(tmp_path / f"{name}.wav").tobytes()).hexdigest())
        found.add(digest)
    assert len(found) == 2


def test_the_last_bit_of_24_changes_the_digest(tmp_path):
    samples = np.arange(-2_000, 2_000, dtype=np.int32) << 8
    for name in ("a.wav", "a.flac"):
        soundfile.write(tmp_path / name, samples, 16_000, subtype="PCM_24")
    same = {inspect_audio(tmp_path / name)[1] for name in ("a.wav", "a.flac")}
    samples[77] ^= 1 << 8
    soundfile.write(tmp_path / "a.wav", samples, 16_000, subtype="PCM_24")
    assert len(same) == 1 and inspect_audio(tmp_path / "a.wav")[1] not in same


# ---- samples that are no numbers


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 1e20])
def test_a_sample_that_is_not_finite_is_named_with_its_place(tmp_path, value):
    samples = tone(1.0) / 32_768
    samples[[8_000, 9_000]] = value
    soundfile.write(tmp_path / "a.wav", samples, 16_000, subtype="DOUBLE")
    for read in (read_audio, inspect_audio):
        with pytest.raises(UserError, match=r"a\.wav: sample 8000 \(at 0\.5000 s\) is [-+.\w]+: export"):
            read(tmp_path / "a.wav")


def test_a_float_file_at_the_scale_of_integers_is_read(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(1.0).astype(np.float32), 16_000, subtype="FLOAT")
    assert np.array_equal(read_audio(tmp_path / "a.wav"), tone(1.0))


# ---- speed


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
