"""Back-off n-gram models of words, read from ARPA files (https://cmusphinx.github.io/wiki/arpaformat/)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from geomix.errors import UserError
from geomix.speech.manifest import read_lines

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
_NEVER = -10.0
"""log10 probability of a word that the model lacks, where it has no <unk> either."""


@dataclass(frozen=True)
class NGram:
    """log10 probabilities of n-grams up to `order`, and back-off weights of histories; words as they are spelt."""

    order: int
    probabilities: dict[tuple[str, ...], float]
    backoffs: dict[tuple[str, ...], float]

    @classmethod
    def read(cls, path: Path) -> NGram:
        """From an ARPA file; `UserError` for another kind of file."""
        order, probabilities, backoffs = 0, {}, {}
        for number, line in enumerate(read_lines(path, "give an n-gram model in ARPA form"), 1):
            line = line.strip()
            if section := re.fullmatch(r"\\(\d+)-grams:", line):
                order = int(section[1])
            elif line.startswith("\\") or not order or not line:
                order = order if line != "\\end\\" else 0
            else:
                try:
                    probability, *words = line.split()
                    words, backoff = words[:order], words[order:]
                    if len(words) != order or len(backoff) > 1:
                        raise ValueError
                    probabilities[tuple(words)] = float(probability)
                    backoffs[tuple(words)] = float(backoff[0]) if backoff else 0.0
                except ValueError:
                    raise UserError(
                        f"{path}: line {number} is no {order}-gram with its log10 probability: make the model again"
                    ) from None
        if not probabilities or not all(map(math.isfinite, (*probabilities.values(), *backoffs.values()))):
            raise UserError(f"{path}: holds no n-grams: give an n-gram model in ARPA form")
        return cls(max(map(len, probabilities)), probabilities, backoffs)

    def score(self, history: tuple[str, ...], word: str) -> float:
        """ln P(word | history): of the longest n-gram that the model has, less the weights of the histories given up."""
        word = word if (word,) in self.probabilities else UNKNOWN
        history = history[-(self.order - 1) :] if self.order > 1 else ()
        total = 0.0
        while (*history, word) not in self.probabilities:
            if not history:
                return math.log(10) * (total + _NEVER)
            total += self.backoffs.get(history, 0.0)
            history = history[1:]
        return math.log(10) * (total + self.probabilities[*history, word])
