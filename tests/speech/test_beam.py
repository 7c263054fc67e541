"""Beam search with an n-gram model against a sum over all paths of all texts."""

import itertools
import math

import pytest
import torch

from geomix.errors import UserError
from geomix.speech.beam import Beam, BeamSearch
from geomix.speech.decoding import collapse
from geomix.speech.ngram import NGram
from geomix.speech.tokenizer import Tokenizer, train_tokenizer

ARPA = """\\data\\
ngram 1=5
ngram 2=4

\\1-grams:
-99\t<s>\t-0.3
-0.9\t</s>
-1.2\t<unk>
-0.5\tAB\t-0.2
-0.7\tB\t-0.4

\\2-grams:
-0.2\t<s> AB
-0.6\tAB B
-0.3\tB </s>
-1.1\tB AB

\\end\\
"""


def log10_probability(words):
    """The bigram model above with backing off, by the definition."""
    pairs = {("<s>", "AB"): -0.2, ("AB", "B"): -0.6, ("B", "</s>"): -0.3, ("B", "AB"): -1.1}
    unigrams, backoff = {"AB": -0.5, "B": -0.7, "</s>": -0.9, "<unk>": -1.2}, {"<s>": -0.3, "AB": -0.2, "B": -0.4}
    total = 0.0
    words = [word if word in unigrams else "<unk>" for word in words]
    for pair in itertools.pairwise(["<s>", *words, "</s>"]):
        total += pairs[pair] if pair in pairs else backoff.get(pair[0], 0) + unigrams[pair[1]]
    return total


@pytest.fixture
def lm(tmp_path):
    (tmp_path / "lm.arpa").write_text(ARPA)
    return NGram.read(tmp_path / "lm.arpa")


@pytest.fixture(scope="module", params=["char", "word"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["AB B", "B AB"], folder, request.param)
    return Tokenizer.load(folder)


def test_probabilities_back_off_by_the_definition(lm):
    for n in range(4):
        for words in itertools.product(("AB", "B", "X"), repeat=n):
            said = ("<s>", *words, "</s>")
            found = sum(lm.score(said[:k], said[k]) for k in range(1, len(said)))
            assert found == pytest.approx(math.log(10) * log10_probability(words))


@pytest.mark.parametrize(("lm_weight", "word_score"), [(0.0, 0.0), (0.7, 0.0), (2.0, -0.7), (0.3, 2.0)])
def test_the_search_finds_the_best_of_all_texts(lm, tokenizer, lm_weight, word_score):
    search = BeamSearch(tokenizer, lm, Beam(lm_weight, word_score, size=10**6, floor=-math.inf))
    frames, units = 5, tokenizer.size
    paths = torch.tensor(list(itertools.product(range(units), repeat=frames)))
    labels = [tuple(collapse(path)) for path in paths.tolist()]
    for seed in range(3):
        torch.manual_seed(seed)
        log_probs = (2 * torch.randn(frames, units)).log_softmax(-1)
        totals: dict = {}
        for label, score in zip(labels, log_probs[torch.arange(frames), paths].sum(-1).exp().tolist(), strict=True):
            totals[label] = totals.get(label, 0.0) + score
        words = {label: tokenizer.decode(label).split() for label in totals}
        value = {
            label: math.log(total)
            + lm_weight * math.log(10) * log10_probability(words[label])
            + word_score * len(words[label])
            for label, total in totals.items()
        }
        assert search.labels(log_probs.numpy()) == max(value, key=value.get)
    assert search.labels(log_probs[:0].numpy()) == ()


def test_what_is_no_arpa_file_is_told(tmp_path):
    for text, sentence in (("AB B\n", "holds no n-grams"), ("\\1-grams:\n-1 AB\n-x AB\n", "line 3 is no 1-gram")):
        (tmp_path / "lm.arpa").write_text(text)
        with pytest.raises(UserError, match=f"lm.arpa: {sentence}"):
            NGram.read(tmp_path / "lm.arpa")
