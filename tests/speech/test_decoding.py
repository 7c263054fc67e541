"""Greedy CTC decoding."""

import itertools
import random

import numpy as np
import torch
from torch import nn

from geomix.speech.decoding import BLANK, collapse, greedy_decode, greedy_labels, write_hypotheses
from geomix.speech.scoring import read_text

CPU = torch.device("cpu")


class Tokens:
    """Ids as words."""

    size = 12

    def decode(self, ids):
        assert BLANK not in ids
        return " ".join(f"W{i}" for i in ids)


class Echo(nn.Module):
    """Says that the label of a frame is its largest band; what lies beyond a length is noise that must not be read."""

    def log_probs(self, features, lengths):
        assert not torch.is_autocast_enabled("cpu")
        noise = torch.arange(features.shape[1])[None] >= lengths[:, None]
        features = features.clone()
        features[noise] = torch.randn(int(noise.sum()), features.shape[2])
        return features.log_softmax(-1), lengths


def test_collapse_merges_runs_before_it_drops_blanks():
    assert collapse([0, 3, 3, 0, 3, 5, 5, 0, 0]) == [3, 3, 5]
    assert collapse([]) == collapse([0, 0]) == []
    draw = random.Random(0)
    for _ in range(500):
        path = draw.choices(range(4), k=draw.randint(0, 12))
        assert collapse(path) == [key for key, _ in itertools.groupby(path) if key != 0]


def test_every_path_of_a_label_sequence_collapses_to_it():
    """CTC's own definition: the paths that collapse to [1, 1] at T = 4 are the nine that its loss sums over."""
    paths = [p for p in itertools.product((0, 1), repeat=4) if collapse(p) == [1, 1]]
    log_probs = torch.full((4, 1, 2), 0.5).log()
    loss = nn.functional.ctc_loss(log_probs, torch.tensor([[1, 1]]), (4,), (2,), reduction="sum")
    assert len(paths) * 0.5**4 == float(torch.exp(-loss))


def test_frames_at_and_beyond_the_length_are_not_read():
    log_probs = torch.zeros(2, 5, 4)
    log_probs[:, torch.arange(5), [1, 0, 2, 3, 3]] = 1.0
    labels, blanks = greedy_labels(log_probs, torch.tensor([5, 3]))
    assert labels == [[1, 2, 3], [1, 2]] and blanks == 2


def store(count=23, seed=0):
    draw = np.random.default_rng(seed)
    return {
        f"utt{i:02d}": draw.normal(size=(int(n), 12)).astype(np.float32)
        for i, n in enumerate(draw.integers(1, 400, count))
    }


def test_batches_never_change_a_text():
    utterances = store()
    together = greedy_decode(Echo(), utterances, Tokens(), batch_seconds=8, device=CPU)
    alone = {i: greedy_decode(Echo(), {i: x}, Tokens(), device=CPU)[i] for i, x in utterances.items()}
    expected = {i: " ".join(f"W{k}" for k in collapse(x.argmax(1).tolist())) for i, x in utterances.items()}
    assert together == alone == expected
    assert list(together) == sorted(utterances)


def test_one_utterance_longer_than_a_batch_is_decoded():
    utterances = {"long": store(1)["utt00"].repeat(50, 0)}
    assert greedy_decode(Echo(), utterances, Tokens(), batch_seconds=1, device=CPU)["long"]


def test_decoding_is_fp32_whatever_autocast_says():
    """bf16 has 8 bits: of 5000 random logits the largest differs in one row of fifty. Echo asserts that autocast is
    off.
    """
    utterances = store(3)
    plain = greedy_decode(Echo(), utterances, Tokens(), device=CPU)
    with torch.autocast("cpu", torch.bfloat16):
        assert greedy_decode(Echo(), utterances, Tokens(), device=CPU) == plain


def test_hypotheses_are_written_complete_sorted_and_read_back(tmp_path):
    texts = {"b-1": "TWO WORDS", "a-2": "", "a-10": "ONE"}
    write_hypotheses(tmp_path / "hyp/set/text", texts)
    assert (tmp_path / "hyp/set/text").read_text() == "a-10 ONE\na-2\nb-1 TWO WORDS\n"
    assert read_text(tmp_path / "hyp/set/text") == texts
