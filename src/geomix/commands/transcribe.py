"""`geomix transcribe`: decode audio files with a trained model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from geomix.commands.arguments import positive
from geomix.errors import UserError

SAMPLE_RATE = 16_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="folder with model.safetensors, model.yaml, tokenizer.model and tokens.txt",
    )
    parser.add_argument("audio", nargs="+", metavar="AUDIO", help="WAV or FLAC files, mono, 16 kHz, of any length")
    parser.add_argument(
        "--max-seconds",
        type=positive,
        default=30.0,
        metavar="S",
        help="a longer file is cut into pieces of at most S seconds, at the quietest place of each piece's last fifth; "
        "attention's memory grows with the square of a piece (default: %(default)s, the longest utterance of the recipe)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")


def run(arguments: argparse.Namespace) -> None:
    """Print `FILE<tab>TEXT` for each file, in the order given; a file that cannot be read or decoded is told, and the status is 1."""
    import torch

    from geomix.commands.recordings import finish, one_line, read_recording, told
    from geomix.speech.decoding import greedy_decode, load_recogniser
    from geomix.speech.features import N_FFT, log_mel
    from geomix.training.devices import choose_device

    if arguments.max_seconds < 1:
        raise UserError(f"--max-seconds {arguments.max_seconds}: give at least 1")
    device = choose_device(arguments.device)
    model, tokenizer = load_recogniser(arguments.model, device)
    failures: list = []
    for path in arguments.audio:
        with told(failures):
            pieces = cut(read_recording(path, N_FFT // 2 + 1), arguments.max_seconds)
            if len(pieces) > 1:
                print(
                    f"{path}: longer than {arguments.max_seconds:g} s, decoded in {len(pieces)} pieces", file=sys.stderr
                )
            features = {f"{number:06d}": log_mel(piece) for number, piece in enumerate(pieces)}
            frames = torch.tensor([len(f) for f in features.values()])
            if int(model.subsampled_lengths(frames).min()) < 1:
                raise UserError(f"{path}: shorter than one output frame of the model: give a longer recording")
            if not all(np.isfinite(f).all() for f in features.values()):
                raise UserError(f"{path}: too loud for its power to be a number: scale the samples into -1 .. 1")
            texts = greedy_decode(model, features, tokenizer, device=device)
            print(path, one_line(" ".join(texts.values())), sep="\t", flush=True)
    finish(failures)


def cut(waveform: np.ndarray, max_seconds: float) -> list[np.ndarray]:
    """Cut a waveform (samples,) at 16 kHz into pieces of at most `max_seconds`, at quiet places.

    A cut falls on the 50 ms with the least energy in the last fifth of what may go into a piece, but never so late that
    less than half a second is left over for the last one. Any length can be cut; `max_seconds` is 1 at least.
    """
    longest, window = int(max_seconds * SAMPLE_RATE), SAMPLE_RATE // 20
    pieces = []
    while len(waveform) > longest:
        high = min(longest, len(waveform) - SAMPLE_RATE // 2)
        low = int(0.8 * high)
        windows = (high - low) // window
        energy = np.square(waveform[low : low + windows * window], dtype=np.float64).reshape(windows, window).sum(1)
        middle = low + int(energy.argmin()) * window + window // 2
        pieces.append(waveform[:middle])
        waveform = waveform[middle:]
    return [*pieces, waveform]
