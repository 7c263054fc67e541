"""Published Granite Speech checkpoints on the evaluation sets of a speech study: decode and score (geomix.report.references makes their rows).

A checkpoint's results lie where a trained arm's would, in results/<run>/granite/<checkpoint>/seed0/ (with `-ctc` behind the name
for the encoder's own CTC head). Nothing is downloaded: the folder of a checkpoint is filled by hand.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geomix.errors import UserError
from geomix.files import sha256, write_json
from geomix.models.granite import CTCTranscriber, Transcriber, load_checkpoint, load_encoder
from geomix.models.granite.checkpoint import DTYPES
from geomix.models.granite.features import MIN_SAMPLES
from geomix.models.granite.prompt import TRANSCRIBE
from geomix.speech.audio import read_audio
from geomix.speech.decoding import write_hypotheses
from geomix.speech.manifest import Utterance, read_lines, read_manifest
from geomix.speech.progress import Progress
from geomix.training import devices
from geomix.training.cpu import cpu_name
from geomix.training.record import code_version, package_versions

# decoding options and their defaults; `decode` takes all, `ctc` those without a star
OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "batch": 8,
    "window_seconds": 40.0,
    "beams": 1,  # *
    "max_new_tokens": 200,  # *
    "length_penalty": 1.0,  # *
    "prompt": TRANSCRIBE,  # *, what the user turn asks for after the audio
    "system": "default",  # *, see PromptTokenizer.render
    "alphabet": None,  # ctc only: a file, one symbol a line
}
_DECODE_ONLY = ("beams", "max_new_tokens", "length_penalty", "prompt", "system")


def make_transcriber(
    checkpoint: str | Path,
    head: str,
    options: Mapping[str, Any],
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> Transcriber | CTCTranscriber:
    """A checkpoint folder and decoding options (see `OPTIONS`) to something that transcribes; head: "decode" or "ctc".

    UserError for an absent folder, saying what belongs there, and for an unknown option.
    """
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder: put a Granite Speech checkpoint there (config.json, the safetensors files with their "
            "index, adapter_* for 3.x, tokenizer.json, tokenizer_config.json); nothing is downloaded"
        )
    refused = ("alphabet",) if head == "decode" else _DECODE_ONLY
    for key in options:
        if key not in OPTIONS or key in refused:
            known = ", ".join(name for name in OPTIONS if name not in refused)
            raise UserError(f"granite: option {key!r} is not one of {head}'s: choose from {known}")
    chosen = {key: value for key, value in {**OPTIONS, **options}.items() if key not in refused}
    dtype, place = chosen.pop("dtype"), str(devices.choose_device(device))
    if dtype not in DTYPES:
        raise UserError(f"granite: dtype {dtype!r} is not known: choose from {', '.join(DTYPES)}")
    report = progress.add if progress else None
    if head == "decode":
        model, tokenizer = load_checkpoint(folder, dtype=dtype, device=place)
        return Transcriber(model, tokenizer, instruction=chosen.pop("prompt"), progress=report, **chosen)
    alphabet = chosen.pop("alphabet")
    symbols = None if alphabet is None else read_lines(alphabet, "give the CTC head's symbols, one a line")
    return CTCTranscriber(load_encoder(folder, dtype=dtype, device=place), symbols, progress=report, **chosen)


def decode_sets(
    checkpoint: str | Path,
    manifests: Mapping[str, str | Path],
    texts: Mapping[str, str | Path],
    record: str | Path,
    *,
    head: str,
    about: Mapping[str, Any],
    options: Mapping[str, Any],
    device: str = "auto",
    threads: int = 1,
) -> None:
    """Decode every evaluation set with one checkpoint into Kaldi texts, and write the record.

    manifests, texts: {set: manifest}, {set: text to write}. head: "decode" (the whole model) or "ctc" (the encoder's head). about: what the record says of the
    run beside what is found here: run, corpus, arm.
    """
    torch.set_num_threads(threads)
    folder = Path(checkpoint)
    sets = {name: read_manifest(path) for name, path in manifests.items()}
    everything = [utterance for utterances in sets.values() for utterance in utterances]
    progress = Progress(f"granite {head} with {folder.name}", len(everything))
    transcriber = make_transcriber(folder, head, options, device=device, progress=progress)
    model = transcriber.model if head == "decode" else transcriber.encoder
    begun = time.monotonic()
    for name, utterances in sets.items():
        write_hypotheses(Path(texts[name]), _transcribe(transcriber, utterances))
    progress.close()
    seconds, spoken = time.monotonic() - begun, sum(utterance.seconds for utterance in everything)
    found = {
        **about,
        "track": "granite",
        "seed": 0,
        "mixer": {"mixer": "blocked_attention"},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "reference": True,
        "note": "published checkpoint, not trained here",
        "head": head,
        "settings": {**{key: OPTIONS[key] for key in OPTIONS if key != "alphabet"}, **options},
        "prompt": transcriber.prompt if head == "decode" else None,
        "checkpoint": {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()},
        "data": {
            "utterances": len(everything),
            "seconds": round(spoken, 2),
            "hashes": {name: sha256(path) for name, path in manifests.items()},
        },
        **code_version(),
        "device": devices.device_name(transcriber.device),
        "cpu": cpu_name(),
        "threads": threads,
        "packages": package_versions(),
        "wall_seconds": round(seconds, 2),
        "audio_seconds_per_second": round(spoken / max(seconds, 1e-9), 2),
        "peak_memory_bytes": devices.peak_memory(transcriber.device),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(record, found)


def _transcribe(transcriber: Transcriber | CTCTranscriber, utterances: Sequence[Utterance]) -> dict[str, str]:
    # sorted, so that a batch holds similar lengths; in portions, so that the recordings of a large set need not fit in memory
    ordered = sorted(utterances, key=lambda utterance: -utterance.samples)
    texts: dict[str, str] = {}
    portion = 16 * transcriber.batch
    for first in range(0, len(ordered), portion):
        some = ordered[first : first + portion]
        found = transcriber.transcribe([_samples(utterance) for utterance in some])
        texts |= {utterance.id: " ".join(text.split()) for utterance, text in zip(some, found, strict=True)}
    return texts


def _samples(utterance: Utterance) -> np.ndarray:
    """Samples of an utterance, all finite; one too short for features gets an empty hypothesis, with a warning by its id."""
    samples = read_audio(utterance.path)
    if not np.isfinite(samples).all():
        raise UserError(
            f"{utterance.path}: utterance {utterance.id} has samples that are no finite numbers: export it again"
        )
    if len(samples) < MIN_SAMPLES:
        print(
            f"geomix: utterance {utterance.id}: {len(samples)} samples are too short for features: its hypothesis is empty",
            file=sys.stderr,
        )
    return samples
