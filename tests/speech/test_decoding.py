"""Greedy CTC decoding."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn

from geomix.errors import UserError
from geomix.speech.decoding import (
    BLANK,
    collapse,
    greedy_decode,
    greedy_labels,
    log_prob_batches,
    write_hypotheses,
)
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

    def subsampled_lengths(self, lengths):
        return lengths

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


# ---- what is too short, and what is no number


class Halving(Echo):
    """One output frame for two of the input, rounded down; one utterance alone has none."""

    def subsampled_lengths(self, lengths):
        return lengths // 2

    def log_probs(self, features, lengths):
        assert int(lengths.min()) >= 2, "the model was given what it refuses"
        log_probs, _ = super().log_probs(features, lengths)
        return log_probs[:, ::2][:, : int(lengths.max()) // 2], lengths // 2


@pytest.mark.parametrize("others", [0, 3])
def test_an_utterance_without_an_output_frame_has_an_empty_hypothesis_and_a_warning(capsys, others):
    """espnet#2746: 40 ms of audio ended the decoding of a whole set."""
    utterances = store(23)
    utterances = {i: x for i, x in utterances.items() if len(x) > 1}
    kept = dict(list(utterances.items())[:others])
    some = {**kept, f"brief-{others}": utterances["utt00"][:1], f"short-{others}": utterances["utt01"][:1]}
    texts = greedy_decode(Halving(), some, Tokens(), device=CPU)
    assert texts == {f"brief-{others}": "", f"short-{others}": "", **greedy_decode_or_none(kept)}
    assert list(texts) == sorted(some)
    assert capsys.readouterr().err.count(f"brief-{others} short-{others}") == 1


def greedy_decode_or_none(utterances):
    return greedy_decode(Halving(), utterances, Tokens(), device=CPU) if utterances else {}


def test_ctc_loss_leaves_out_what_is_too_short():
    """As the dev loss takes it: no frame, so no alignment; zero_infinity makes it 0, and its labels are never read."""
    utterances = {"a": store(1)["utt00"], "b": store(1)["utt00"][:1]}
    batches = list(log_prob_batches(Halving(), utterances, list(utterances), device=CPU))
    assert [ids for ids, _, _ in batches] == [["a"], ["b"]]
    _, log_probs, lengths = batches[1]
    assert lengths.tolist() == [0] and log_probs.shape[-1] == 12
    loss = nn.functional.ctc_loss(
        log_probs.transpose(0, 1),
        torch.tensor([[3, 11]]),
        lengths,
        torch.tensor([2]),
        reduction="none",
        zero_infinity=True,
    )
    assert loss.tolist() == [0.0]
    assert greedy_labels(log_probs, lengths) == ([[]], 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [0, 7])
def test_logits_that_are_no_numbers_never_count_as_blank(value, where):
    utterances = store(3)
    name = next(i for i, x in utterances.items() if len(x) > 7)
    utterances[name][where, 4] = value
    with pytest.raises(UserError, match=f"utterance {name}: the model gives NaN at output frame {where}"):
        greedy_decode(Echo(), utterances, Tokens(), device=CPU)
    log_probs = torch.tensor(utterances[name])[None].log_softmax(-1)
    with pytest.raises(UserError, match=f"gives NaN at output frame {where}"):
        greedy_labels(log_probs, torch.tensor([8]))
    assert greedy_labels(log_probs, torch.tensor([where]))[0], "what lies beyond a length is not read"


def test_hypotheses_are_written_complete_sorted_and_read_back(tmp_path):
    texts = {"b-1": "TWO WORDS", "a-2": "", "a-10": "ONE"}
    write_hypotheses(tmp_path / "hyp/set/text", texts)
    assert (tmp_path / "hyp/set/text").read_text() == "a-10 ONE\na-2\nb-1 TWO WORDS\n"
    assert read_text(tmp_path / "hyp/set/text") == texts
