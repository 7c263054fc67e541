"""Log-mel features as ESPnet's default frontend computes them, and the memory-mapped store they live in.

Features are kept before normalisation: masking and time warping happen on the raw log-mel (as in ESPnet), the model
normalises.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from geomix import files
from geomix.algebra.constants import constant
from geomix.errors import UserError
from geomix.speech.audio import perturb_speed, read_audio
from geomix.speech.manifest import SAMPLE_RATE, SAMPLES_WITHOUT_FRAME, Utterance, read_lines
from geomix.speech.progress import Progress
from geomix.speech.threads import processors

N_FFT = 512
WINDOW = 400
HOP = 160
N_MELS = 80
FLOOR = 1e-10
"""Mel power below this is raised to it before the logarithm."""

_SUFFIXES = {np.dtype("float32"): "f32", np.dtype("float16"): "f16"}


def frames_of(samples: int) -> int:
    """Number of feature frames of a waveform: the transform is centred, so samples // hop + 1."""
    return samples // HOP + 1


@functools.cache
def mel_filters(n_mels: int = N_MELS) -> np.ndarray:
    """Slaney's mel filter bank with area normalisation, 0 to 8 kHz, float64, shape (n_fft / 2 + 1, n_mels).

    The same as librosa.filters.mel(sr=16000, n_fft=512, n_mels=n_mels, htk=False), which ESPnet's LogMel uses.
    """
    # linear below 1 kHz (200/3 Hz a mel), logarithmic above (27 mels for a factor of 6.4): Slaney's Auditory Toolbox
    hz_per_mel, break_hz, log_step = 200 / 3, 1000.0, np.log(6.4) / 27
    break_mel = break_hz / hz_per_mel
    top_mel = break_mel + np.log(SAMPLE_RATE / 2 / break_hz) / log_step
    mels = np.linspace(0, top_mel, n_mels + 2)
    edges = np.where(mels < break_mel, mels * hz_per_mel, break_hz * np.exp(log_step * (mels - break_mel)))
    bins = np.fft.rfftfreq(N_FFT, 1 / SAMPLE_RATE)[:, None]
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    triangles = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
    return np.maximum(triangles, 0) * (2 / (high - low))


@constant
def _window_and_filters(n_mels: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    window = torch.hann_window(WINDOW, dtype=dtype, device=device)
    return window, torch.from_numpy(mel_filters(n_mels)).to(device, dtype)


def log_mel(waveform: torch.Tensor | np.ndarray, n_mels: int = N_MELS) -> torch.Tensor | np.ndarray:
    """Natural logarithm of the mel power spectrum, as ESPnet 202611's DefaultFrontend and LogMel.

    Hann window 25 ms, hop 10 ms, n_fft 512, centred with reflection, Slaney mel, power clamped at 1e-10.

    Parameters
    ----------
    waveform : (..., samples), float32 or float64, samples in [-1, 1) at 16 kHz

    Returns
    -------
    (..., samples // 160 + 1, n_mels) in the dtype of the waveform; a tensor for a tensor, an array for an array.

    Raises
    ------
    UserError
        For a waveform of 256 samples or fewer, and for samples that are not finite or whose power overflows.
    """
    if isinstance(waveform, np.ndarray):
        return log_mel(torch.from_numpy(waveform), n_mels).numpy()
    if waveform.shape[-1] <= SAMPLES_WITHOUT_FRAME:
        raise UserError(f"a waveform of {waveform.shape[-1]} samples is too short for features: give more than 256")
    window, filters = _window_and_filters(n_mels, waveform.dtype, waveform.device)
    spectrum = torch.stft(
        waveform.reshape(-1, waveform.shape[-1]),
        N_FFT,
        hop_length=HOP,
        win_length=WINDOW,
        window=window,
        center=True,
        pad_mode="reflect",
        return_complex=True,
    )
    power = torch.view_as_real(spectrum.transpose(-1, -2)).square().sum(-1)
    features = (power @ filters).clamp(min=FLOOR).log()
    if not torch.isfinite(features).all():
        # to a model NaN is one number like another: it would come back as silence
        raise UserError(
            f"a waveform whose largest sample is {float(waveform.abs().max()):g} has no finite features: "
            "give finite samples, in [-1, 1) as a rule"
        )
    return features.reshape(*waveform.shape[:-1], *features.shape[-2:])


def write_features(
    utterances: Sequence[Utterance],
    prefix: str | os.PathLike,
    dtype: str = "float32",
    threads: int | None = None,
    progress: bool = True,
) -> None:
    """Compute the features of `utterances`, each at its speed, into `<prefix>.f32` (or .f16) and `<prefix>.index.tsv`.

    The index appears last: where it stands, the store is complete. Memory stays bounded by one utterance a thread.

    Parameters
    ----------
    dtype : float32, or float16 for half the disk (log-mel values up to 16 are then rounded to 1/128 at worst)
    threads : how many utterances to work on at once; default: the processors this process may use
    """
    if np.dtype(dtype) not in _SUFFIXES:
        raise UserError(f"feature_dtype {dtype}: give float32 or float16")
    dtype = np.dtype(dtype)
    utterances = sorted(utterances, key=lambda u: u.id)
    lengths = [frames_of(u.samples) for u in utterances]
    starts = np.cumsum([0, *lengths])
    bytes_per_frame = N_MELS * dtype.itemsize
    show = Progress(f"features {Path(prefix).name}", len(utterances))

    _index_path(prefix).unlink(missing_ok=True)
    with files.atomic_path(f"{prefix}.{_SUFFIXES[dtype]}") as temporary, open(temporary, "rb+") as file:
        file.truncate(int(starts[-1]) * bytes_per_frame)

        def compute(number: int) -> int:
            # decoding, resampling and transforms release the interpreter lock, so threads scale without copies
            torch.set_num_threads(1)
            utterance = utterances[number]
            waveform = perturb_speed(torch.from_numpy(read_audio(utterance.path)), utterance.speed)
            if len(waveform) != utterance.samples:
                raise UserError(
                    f"{utterance.path}: {len(waveform)} samples at speed {utterance.speed}, {utterance.samples} in the "
                    "manifest: the audio changed, prepare the corpus again"
                )
            try:
                frames = log_mel(waveform).numpy()
            except UserError as error:
                raise UserError(f"{utterance.path}: utterance {utterance.id}: {error}") from None
            block = memoryview(frames.astype(dtype, copy=False)).cast("B")
            offset = int(starts[number]) * bytes_per_frame
            while block:
                written = os.pwrite(file.fileno(), block, offset)
                block, offset = block[written:], offset + written
            return number

        own_threads = torch.get_num_threads()
        try:
            with ThreadPoolExecutor(threads or processors()) as pool:
                for number in pool.map(compute, range(len(utterances))):
                    if progress:
                        show.add(1, utterances[number].seconds)
        finally:
            torch.set_num_threads(own_threads)
    rows = [f"{u.id}\t{frames}\n" for u, frames in zip(utterances, lengths, strict=True)]
    files.write_text(_index_path(prefix), f"id\tframes\t{_SUFFIXES[dtype]}\n" + "".join(rows))
    if progress:
        show.close()


def _index_path(prefix: str | os.PathLike) -> Path:
    return Path(f"{prefix}.index.tsv")


class FeatureStore(Mapping[str, np.ndarray]):
    """Features by utterance id, read from memory-mapped files: `store[id]` is an array (frames, 80), a view of the file.

    Opening reads the index alone; the files are mapped at the first look. A store can be pickled: the copy maps anew.
    """

    def __init__(self, parts: list[tuple[str, np.dtype, int]], where: dict[str, tuple[int, int, int]]):
        self._parts = parts  # (path, dtype, frames) of each file
        self._where = where  # id -> (part, first frame, frames)
        self._maps: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, *prefixes: str | os.PathLike) -> FeatureStore:
        """Open one store, or several as one (their ids must differ, as those of speed copies do)."""
        parts, where = [], {}
        for prefix in prefixes:
            index = _index_path(prefix)
            if not index.exists():
                raise UserError(f"{index}: no such features: run the step that computes them")
            header, *rows = read_lines(index, "run the step that computes the features")
            suffix = header.split("\t")[-1]
            dtype = next((d for d, s in _SUFFIXES.items() if s == suffix), None)
            data = Path(f"{prefix}.{suffix}")
            start = 0
            for row in rows:
                utterance_id, _, frames = row.partition("\t")
                if not frames.isdecimal():
                    raise UserError(f"{index}: {row!r} is not an id, a tab and a number: compute the features again")
                if utterance_id in where:
                    raise UserError(f"{index}: utterance {utterance_id} is in another opened store too: open one only")
                where[utterance_id] = (len(parts), start, int(frames))
                start += int(frames)
            if dtype is None or not data.exists() or data.stat().st_size != start * N_MELS * dtype.itemsize:
                raise UserError(f"{data}: does not hold the {start} frames of its index: compute the features again")
            parts.append((str(data.absolute()), dtype, start))
        return cls(parts, where)

    @property
    def lengths(self) -> dict[str, int]:
        """Number of frames of each utterance."""
        return {utterance_id: frames for utterance_id, (_, _, frames) in self._where.items()}

    def __getitem__(self, utterance_id: str) -> np.ndarray:
        part, start, frames = self._where[utterance_id]
        return self._map(part)[start : start + frames]

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, utterance_id: object) -> bool:
        return utterance_id in self._where

    def chunks(self, frames: int = 1 << 15) -> Iterator[np.ndarray]:
        """All frames in file order, as arrays of at most `frames` frames."""
        for part, (_, _, total) in enumerate(self._parts):
            for start in range(0, total, frames):
                yield self._map(part)[start : min(start + frames, total)]

    def _map(self, part: int) -> np.ndarray:
        if part not in self._maps:
            path, dtype, frames = self._parts[part]
            shape = (frames, N_MELS)
            # an empty file cannot be mapped
            self._maps[part] = np.memmap(path, dtype, "r", shape=shape) if frames else np.empty(shape, dtype)
        return self._maps[part]

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_maps": {}}


def global_mean_variance(stores: FeatureStore | Iterable[FeatureStore]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over all frames of the training set's stores, float32, shape (80,) each.

    As ESPnet's GlobalMVN: sum and sum of squares over all frames, variance floored at 1e-20.
    """
    stores = [stores] if isinstance(stores, FeatureStore) else list(stores)
    count, total, squares = 0, np.zeros(N_MELS), np.zeros(N_MELS)
    for store in stores:
        for chunk in store.chunks():
            chunk = chunk.astype(np.float64)
            count += len(chunk)
            total += chunk.sum(0)
            squares += np.einsum("ij,ij->j", chunk, chunk)
    if count == 0:
        raise UserError("the training features hold no frame: check the manifest of the training set")
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-20))
    return mean.astype(np.float32), std.astype(np.float32)


def write_normalisation(path: str | os.PathLike, stores: FeatureStore | Iterable[FeatureStore]) -> None:
    """Write `global_mean_variance` of the training stores as JSON {"mean": [80], "std": [80]}."""
    mean, std = global_mean_variance(stores)
    files.write_json(path, {"mean": mean.tolist(), "std": std.tolist()})


def read_normalisation(path: str | os.PathLike) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, float32, shape (80,) each, from the file that `write_normalisation` made.

    Raises
    ------
    UserError
        When the file does not hold 80 finite means and 80 finite deviations above 0.
    """
    content = files.read_object(path, "mean", "std")
    try:
        mean, std = (np.array(content[name], np.float32) for name in ("mean", "std"))
        right = mean.shape == std.shape == (N_MELS,) and np.isfinite([mean, std]).all() and (std > 0).all()
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right:
        raise UserError(
            f"{path}: does not hold {N_MELS} finite means and {N_MELS} deviations above 0: remove it and run the step that "
            "makes it again"
        )
    return mean, std


def open_features(paths: Sequence[Path]) -> FeatureStore:
    """One store over feature files named with their suffix."""
    return FeatureStore.open(*(Path(path).with_suffix("") for path in paths))
