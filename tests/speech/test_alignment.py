"""Labels, words and seams of greedy paths, against torchaudio's forced alignment and counting by hand."""

import itertools

import numpy as np
import pytest
import torch

from geomix.speech.alignment import Path, joined, meeting, words_of
from geomix.speech.tokenizer import Tokenizer, train_tokenizer


def path(ids, start=0):
    ids = np.array(ids)
    return Path(start, ids, np.full(len(ids), -0.1, np.float32))


def test_the_greedy_path_is_the_forced_alignment_of_its_own_text():
    from torchaudio.functional import forced_align, merge_tokens

    for seed in range(20):
        torch.manual_seed(seed)
        log_probs = (3 * torch.randn(60, 5)).log_softmax(-1)
        found = Path.of(log_probs).labels()
        frames, scores = forced_align(log_probs[None], torch.tensor([[label.id for label in found]]), blank=0)
        spans = merge_tokens(frames[0], scores[0])
        assert [(s.token, s.start, s.end) for s in spans] == [(label.id, label.start, label.end) for label in found]
        assert [s.score * (s.end - s.start) for s in spans] == pytest.approx(
            [label.log_prob for label in found], rel=1e-4
        )


def test_a_seam_lies_where_both_paths_say_the_same():
    left = path([0, 1, 1, 0, 0, 0, 0, 2, 2, 0, 5])
    right = path([6, 0, 2, 2, 0, 3, 0], start=5)
    # both have frames 5 to 10, left 0 0 2 2 0 5 and right 6 0 2 2 0 3: they agree on 6 to 9
    assert meeting(left, right) == 8
    both = [0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0]
    assert all(meeting(path(both, start), path(both, start)) == start + 6 for start in (0, 3))  # the same: the middle


def test_what_is_joined_reads_as_the_joined_path_does():
    draw = np.random.default_rng(0)
    for _ in range(200):
        left, right = path(draw.integers(0, 3, 12)), path(draw.integers(0, 3, 12), start=6)
        seam = meeting(left, right)
        assert 6 <= seam <= 12
        parts = left.between(0, seam), right.between(seam, 18)
        whole = path(np.concatenate([part.ids for part in parts])).labels()
        found = joined(parts[0].labels(), parts[1].labels())
        assert [(a.id, a.start, a.end) for a in found] == [(b.id, b.start, b.end) for b in whole]
        assert [a.log_prob for a in found] == pytest.approx([b.log_prob for b in whole])


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_words_are_those_of_the_text_and_times_those_of_their_letters(tmp_path, kind):
    train_tokenizer(["ONE TWO", "TWO TEN", "NONE"], tmp_path, kind, 14 if kind == "bpe" else None)
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode("TWO ONE TEN" if kind == "word" else "TWO NOT ENTE")
    frames = list(itertools.chain.from_iterable((0, i, i) for i in ids))
    labels = path(frames).labels()
    words = words_of(labels, tokenizer, 4, 100.0)
    assert " ".join(word.text for word in words) == tokenizer.decode(ids)
    starts = [n for n, i in enumerate(ids) if tokenizer.tokens[i].startswith("▁")]
    first = [n + (tokenizer.tokens[ids[n]] == "▁") for n in starts]  # the mark alone is not the word's sound
    last = [n - 1 for n in starts[1:]] + [len(ids) - 1]
    assert [w.start for w in words] == pytest.approx([(4 * (3 * n + 1) + 1) / 100 for n in first])
    assert [w.end for w in words] == pytest.approx([(4 * (3 * n + 3) + 1) / 100 for n in last])
    assert all(w.confidence == pytest.approx(np.exp(-0.1)) for w in words)
