"""Labels, words and times of a greedy CTC path.

The path that takes the most probable label of each frame is the most probable of all paths, so it is also the most
probable of those that collapse to its own text: the Viterbi ("forced") alignment of the greedy text is the greedy path
itself. It is read off here, without the (frames x labels) table that torchaudio.functional.forced_align fills; a test
compares the two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from geomix.speech.decoding import BLANK

if TYPE_CHECKING:
    import torch

    from geomix.speech.tokenizer import Tokenizer

_SURE = 12
"""Encoder frames on either side of a seam whose agreement is looked at: half a second at subsampling 4."""


@dataclass(frozen=True)
class Label:
    """A token in encoder frames [start, end); log_prob is the sum over these frames."""

    id: int
    start: int
    end: int
    log_prob: float


@dataclass(frozen=True)
class Word:
    """A word in seconds; confidence is the geometric mean of the posteriors of its tokens' frames, in (0, 1]."""

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Path:
    """Most probable label of each encoder frame from frame `start` on, and its log-probability, (n,) each."""

    start: int
    ids: np.ndarray
    log_probs: np.ndarray

    @classmethod
    def of(cls, log_probs: torch.Tensor, start: int = 0) -> Path:
        """From (T', V) log-probabilities."""
        best = log_probs.float().max(-1)
        return cls(start, best.indices.cpu().numpy(), best.values.cpu().numpy())

    @property
    def end(self) -> int:
        """The frame after the last one."""
        return self.start + len(self.ids)

    def between(self, start: int, end: int) -> Path:
        """Its frames [start, end)."""
        part = slice(start - self.start, end - self.start)
        return Path(start, self.ids[part], self.log_probs[part])

    def labels(self) -> list[Label]:
        """Runs of equal labels, without blanks: `decoding.collapse` with frames."""
        found, at = [], 0
        for label, run in itertools.groupby(self.ids.tolist()):
            end = at + len(list(run))
            if label != BLANK:
                found.append(Label(label, self.start + at, self.start + end, float(self.log_probs[at:end].sum())))
            at = end
        return found


def meeting(left: Path, right: Path) -> int:
    """The frame from which on `right` is to be believed instead of `left`, in the frames that both have.

    It lies where both say the same on both sides, up to half a second of it, and among equals as near as may be to the
    middle, where both paths have heard most of what surrounds them.
    """
    start, end = max(left.start, right.start), min(left.end, right.end)
    agree = (left.between(start, end).ids == right.between(start, end).ids).tolist()
    runs = lambda same: list(itertools.accumulate(same, lambda run, equal: (run + 1) * equal, initial=0))
    before, after = runs(agree), runs(agree[::-1])[::-1]  # agreed frames that end, and begin, at each seam
    middle = len(agree) / 2
    return start + max(range(len(before)), key=lambda t: (min(before[t], after[t], _SURE), -abs(t - middle)))


def joined(labels: list[Label], more: list[Label]) -> list[Label]:
    """Labels of two paths that meet; a label that lasts over the seam is one."""
    if labels and more and labels[-1].end == more[0].start and labels[-1].id == more[0].id:
        left, right = labels[-1], more[0]
        both = Label(left.id, left.start, right.end, left.log_prob + right.log_prob)
        return [*labels[:-1], both, *more[1:]]
    return labels + more


def words_of(labels: Sequence[Label], tokenizer: Tokenizer, subsampling: int, seconds: float) -> list[Word]:
    """The words that labels spell, with their times.

    Encoder frame k reads log-mel frames (10 ms apart) whose middle is the frame subsampling * k + subsampling - 1, and
    stands for the `subsampling` frames around it: kernels of 3 with stride 2 and no padding
    (`models.config.lengths`). A word lasts from its first label's first frame to its last label's last one;
    CTC may fire late and briefly, so that the sound may begin earlier and end later.

    subsampling : log-mel frames per encoder frame; seconds : the recording's length, at which times end
    """
    time = lambda frame: min(max(0.0, (subsampling * frame + subsampling / 2 - 1) / 100), seconds)
    words = []
    for text, positions in tokenizer.words([label.id for label in labels]):
        own = [labels[position] for position in positions]
        mean = sum(label.log_prob for label in own) / sum(label.end - label.start for label in own)
        words.append(Word(text, time(own[0].start), time(own[-1].end), math.exp(min(mean, 0.0))))
    return words
