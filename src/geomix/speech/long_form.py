"""Evaluation sets of long recordings: a speaker's utterances joined with short pauses, to hear what length does to a model."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile

from geomix.errors import UserError
from geomix.speech.audio import as_pcm16, read_audio
from geomix.speech.evaluation_set import EvaluationSet, with_features
from geomix.speech.manifest import SAMPLE_RATE, Utterance, write_manifest

PAUSE = 0.3
"""Seconds of near silence (noise at -80 dB of full scale) behind each utterance."""


def groups(utterances: Sequence[Utterance], seconds: float) -> Iterator[list[Utterance]]:
    """Utterances of one speaker in the order of their ids, each group just `seconds` long or longer; what is left over is left out."""
    speakers: dict[str, list[Utterance]] = {}
    for utterance in sorted(utterances, key=lambda u: (u.speaker, u.id)):
        group = speakers.setdefault(utterance.speaker, [])
        group.append(utterance)
        if sum(u.seconds + PAUSE for u in group) >= seconds:
            yield speakers.pop(utterance.speaker)


def joined_set(found: EvaluationSet, seconds: float, work: Path) -> EvaluationSet:
    """The set joined to recordings of `seconds` and little more, written to `work` with its features.

    Raises
    ------
    UserError
        When no speaker has said so much, or an utterance is a copy at another speed.
    """
    name = f"{found.name}-{seconds:g}s"
    folder, joined = work / name, []
    for group in groups(found.utterances, seconds):
        if changed := [u.id for u in group if u.speed != 1.0]:
            raise UserError(f"{found.manifest}: {changed[0]} is a copy at another speed: give a set of recordings")
        parts = []
        for utterance in group:
            noise = np.random.default_rng(zlib.crc32(utterance.id.encode())).normal(size=int(PAUSE * SAMPLE_RATE))
            parts += [read_audio(utterance.path), (1e-4 * noise).astype(np.float32)]
        samples = np.concatenate(parts)
        identity = f"{group[0].id}-and-{len(group) - 1}-more"
        path = folder / "audio" / f"{len(joined):06d}.flac"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, as_pcm16(samples), SAMPLE_RATE)
        text = " ".join(u.text for u in group)
        joined.append(Utterance(identity, group[0].speaker, str(path), len(samples), 1.0, text))
    if not joined:
        raise UserError(
            f"{found.manifest}: no speaker says {seconds:g} s in all: give shorter lengths to --long-form, or a larger set"
        )
    manifest = folder / "manifest" / f"{name}.tsv"
    write_manifest(manifest, joined)
    return with_features(name, manifest, joined, folder)
