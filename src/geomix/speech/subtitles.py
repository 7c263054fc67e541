"""Transcripts as text: a line, JSON, CTM (NIST), WebVTT (W3C) and SRT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from geomix.speech.alignment import Word
from geomix.speech.transcription import Transcript

SUFFIXES = {"text": ".txt", "json": ".json", "ctm": ".ctm", "vtt": ".vtt", "srt": ".srt"}
# customary bounds of a subtitle: two lines of 42 letters, 7 s; a pause of this length ends one
_LETTERS, _SECONDS, _PAUSE = 84, 7.0, 0.8


def as_text(transcript: Transcript) -> str:
    """`NAME<tab>TEXT` and a line end."""
    return f"{transcript.name}\t{transcript.text}\n"


def as_json(transcript: Transcript) -> str:
    """One line: name, seconds, text, and words with text, start, end (s) and confidence."""
    words = [asdict(word) for word in transcript.words]
    found = {"name": transcript.name, "seconds": transcript.seconds, "text": transcript.text, "words": words}
    return json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n"


def as_ctm(transcript: Transcript, recording: str) -> str:
    """NIST's time-marked conversation: `RECORDING 1 START DURATION WORD CONFIDENCE` a line, which sclite reads.

    recording : its name there; white space in it becomes an underscore, since the columns are parted by that.
    """
    name = "_".join(recording.split())
    return "".join(
        f"{name} 1 {word.start:.3f} {word.end - word.start:.3f} {word.text} {word.confidence:.4f}\n"
        for word in transcript.words
    )


def as_vtt(transcript: Transcript) -> str:
    """WebVTT; each word stands behind the time at which it begins, as the format allows inside a cue."""
    cues = ["WEBVTT\n"]
    for start, end, words in cues_of(transcript.words):
        text = " ".join(f"<{_clock(word.start)}>{_escaped(word.text)}" for word in words)
        cues.append(f"{_clock(start)} --> {_clock(end)}\n{text}\n")
    return "\n".join(cues)


def as_srt(transcript: Transcript) -> str:
    """SubRip; it has times for cues alone, and no way to write < and >, which players take for tags: they become ‹ and ›."""
    plain = str.maketrans("<>", "‹›")
    return "\n".join(
        f"{number}\n{_clock(start, ',')} --> {_clock(end, ',')}\n{' '.join(w.text for w in words).translate(plain)}\n"
        for number, (start, end, words) in enumerate(cues_of(transcript.words), 1)
    )


def cues_of(words: Sequence[Word]) -> Iterator[tuple[float, float, list[Word]]]:
    """Words as subtitles: (start, end, words), ended by a pause or when two lines or seven seconds are full."""
    cue: list[Word] = []
    for word in words:
        letters = sum(len(w.text) + 1 for w in cue) + len(word.text)
        if cue and (word.start - cue[-1].end >= _PAUSE or letters > _LETTERS or word.end - cue[0].start > _SECONDS):
            yield cue[0].start, cue[-1].end, cue
            cue = []
        cue.append(word)
    if cue:
        yield cue[0].start, cue[-1].end, cue


def _clock(seconds: float, point: str = ".") -> str:
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
