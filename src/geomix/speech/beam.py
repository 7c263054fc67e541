"""CTC prefix beam search with an n-gram model of words: a second set of hypotheses beside greedy decoding.

Of all texts, the search looks for the one with the largest

    ln p(text | audio), summed over its paths, + lm_weight * ln P(words, end) + word_score * number of words

among the prefixes that its beam keeps (Hannun et al. 2014, arXiv 1408.2873). It is written here because no library does it:
flashlight-text, which torchaudio's decoder calls, lets the last token of a word last one frame alone, unless words end
in a separator, which SentencePiece's begin with; pyctcdecode needs numpy 1 and kenlm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geomix.speech.decoding import BLANK, log_prob_batches
from geomix.speech.ngram import BEGIN, END, NGram

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from geomix.speech.tokenizer import Tokenizer

_NO = -math.inf


@dataclass(frozen=True)
class Beam:
    """size : prefixes kept at each frame; floor : tokens below this log-probability are not tried, the best one always is."""

    lm_weight: float = 0.5
    word_score: float = 1.0
    size: int = 16
    floor: float = -7.0


class BeamSearch:
    """A search for one tokenizer and one n-gram model."""

    def __init__(self, tokenizer: Tokenizer, lm: NGram, beam: Beam):
        self._tokenizer, self._lm, self._beam = tokenizer, lm, beam
        self._bonus: dict[tuple[int, ...], float] = {}  # of a prefix's words that are complete

    def labels(self, log_probs: np.ndarray) -> tuple[int, ...]:
        """The best labels of log-probabilities (T', V)."""
        beam: dict[tuple[int, ...], tuple[float, float]] = {
            (): (0.0, _NO)
        }  # prefix -> ln p ending in blank, in its last label
        self._bonus.clear()
        for frame in log_probs:
            found: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [_NO, _NO])
            tried = sorted({int(frame.argmax()), *(frame > self._beam.floor).nonzero()[0].tolist()})
            for prefix, (blank, label) in beam.items():
                both = _plus(blank, label)
                for token in tried:
                    p = float(frame[token])
                    if token == BLANK:
                        found[prefix][0] = _plus(found[prefix][0], both + p)
                        continue
                    if prefix and token == prefix[-1]:
                        found[prefix][1] = _plus(found[prefix][1], label + p)
                        before = blank
                    else:
                        before = both
                    longer = found[*prefix, token]
                    longer[1] = _plus(longer[1], before + p)
            ranked = sorted(found, key=lambda prefix: (-_plus(*found[prefix]) - self._words(prefix, False), prefix))
            beam = {prefix: tuple(found[prefix]) for prefix in ranked[: self._beam.size] if max(found[prefix]) > _NO}
        return max(beam, key=lambda prefix: _plus(*beam[prefix]) + self._words(prefix, True))

    def _words(self, prefix: tuple[int, ...], ended: bool) -> float:
        """What model and word score say of a prefix: of all its words and the end, or of those that nothing can be added to."""
        if not ended and prefix in self._bonus:
            return self._bonus[prefix]
        words = [word for word, _ in self._tokenizer.words(prefix)]
        if not ended and words and not self._tokenizer.tokens[prefix[-1]].endswith("▁"):
            words.pop()
        said = (BEGIN, *words)
        score = sum(self._lm.score(said[:n], said[n]) for n in range(1, len(said)))
        score += self._lm.score(said, END) if ended else 0.0
        total = self._beam.lm_weight * score + self._beam.word_score * len(words)
        if not ended:
            self._bonus[prefix] = total
        return total

    def decode(
        self,
        model: nn.Module,
        store: Mapping[str, np.ndarray],
        ids: Sequence[str],
        *,
        device: torch.device,
        **options: Any,
    ) -> dict[str, str]:
        """Texts of utterances by id, sorted; options as `decoding.log_prob_batches` takes them."""
        texts = {}
        for batch, log_probs, lengths in log_prob_batches(model, store, ids, device=device, **options):
            for i, row, length in zip(batch, log_probs.float().cpu().numpy(), lengths.tolist(), strict=True):
                texts[i] = self._tokenizer.decode(self.labels(row[:length]))
        return dict(sorted(texts.items()))


def _plus(a: float, b: float) -> float:
    """ln(e^a + e^b)."""
    if a < b:
        a, b = b, a
    return a if b == _NO else a + math.log1p(math.exp(b - a))
