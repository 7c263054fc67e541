"""Text normalisers for comparison with published numbers: what is done to reference and hypothesis alike before they are scored.
`geomix score`, `geomix compare` and the scores of published checkpoints offer all of them.

Published Granite Speech and Open ASR figures are scored with Whisper's English normaliser, LibriSpeech figures of trained
systems without any.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from geomix.errors import UserError


def letters(text: str) -> str:
    """Lower case; letters with their combining marks, digits and apostrophes inside words; all else separates words.

    Signs that are not seen (category Cf: joiners, soft hyphens, marks of direction) break no word and are dropped.
    """
    text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    # re knows no marks (categories Mn, Mc, Me), without which Devanagari's vowel signs would cut words: they stand as \x00
    shape = "".join("\0" if unicodedata.category(c).startswith("M") else c.replace("\0", " ") for c in text)
    word = r"[^\W_](?:[^\W_]|\0)*(?:'[^\W_](?:[^\W_]|\0)*)*"
    return " ".join(text[found.start() : found.end()] for found in re.finditer(word, shape))


def whisper_english() -> Callable[[str], str]:
    """Whisper's EnglishTextNormalizer ([Radford2022], appendix C), from the package whisper-normalizer."""
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()


# name -> what makes the normaliser: one is a package of its own, which is imported when it is asked for
NORMALISERS: dict[str, Callable[[], Callable[[str], str]]] = {
    "none": lambda: str,
    "lower": lambda: str.lower,
    "letters": lambda: letters,
    "whisper-english": whisper_english,
}


def named(name: str) -> Callable[[str], str]:
    """The normaliser of a name in `NORMALISERS`; another name is a `UserError`."""
    if name not in NORMALISERS:
        raise UserError(f"no normaliser is called {name!r}: choose one of {', '.join(NORMALISERS)}")
    return NORMALISERS[name]()
