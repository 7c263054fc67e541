import re

import numpy as np
import pytest

from geomix.errors import UserError
from geomix.speech.corpora import demo_grammar
from geomix.speech.manifest import unfit_text
from geomix.speech.tokenizer import Tokenizer, train_tokenizer

RANDOM = np.random.default_rng(0)
TEXTS = [demo_grammar.sentence(RANDOM) for _ in range(400)]
CASES = [("unigram", 150), ("bpe", 150), ("char", None), ("word", None)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folders = {kind: tmp_path_factory.mktemp(kind) for kind, _ in CASES}
    for kind, size in CASES:
        train_tokenizer(TEXTS, folders[kind], kind, size)
    return folders


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_layout_is_espnets(trained, kind, size):
    """espnet#1508, #5620: index confusion. Blank 0, unknown 1, start/end last, all three within the size."""
    tokenizer = Tokenizer.load(trained[kind])
    tokens = (trained[kind] / "tokens.txt").read_text().splitlines()
    assert tokens == tokenizer.tokens and len(tokens) == tokenizer.size == len(set(tokens))
    assert (tokens[0], tokens[1], tokens[-1]) == ("<blank>", "<unk>", "<sos/eos>")
    assert (tokenizer.blank_id, tokenizer.unk_id, tokenizer.sos_eos_id) == (0, 1, tokenizer.size - 1)
    if size:
        assert tokenizer.size == size
    words = {word for text in TEXTS for word in text.split()}
    if kind == "word":
        assert sorted(tokens[2:-1]) == sorted("▁" + word for word in words)
    if kind == "char":
        assert set(tokens[2:-1]) == {"▁", *"".join(words)}


@pytest.mark.parametrize("kind", [kind for kind, _ in CASES])
def test_decode_of_encode_is_the_text(trained, kind):
    tokenizer = Tokenizer.load(trained[kind])
    for text in [*TEXTS, ""]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(2 <= i < tokenizer.size - 1 for i in ids)
        assert "".join(tokenizer.tokens[i] for i in ids).replace("▁", " ").strip() == text


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_the_same_texts_give_the_same_tokenizer(trained, tmp_path, kind, size):
    train_tokenizer(iter(TEXTS), tmp_path, kind, size)
    for name in ("tokenizer.model", "tokens.txt"):
        assert (tmp_path / name).read_bytes() == (trained[kind] / name).read_bytes()


def test_unknown_words_of_a_reference_are_reported(trained):
    word, char = Tokenizer.load(trained["word"]), Tokenizer.load(trained["char"])
    assert word.encode("NINE ZEPPELIN SEVEN")[1] == word.unk_id
    assert word.decode(word.encode("NINE ZEPPELIN SEVEN")) == "NINE <unk> SEVEN"
    texts = ["NINE ZEPPELIN SEVEN", "A ZEPPELIN", "THE ÜBERBOAT"]
    assert word.unknown_words(texts) == {"ZEPPELIN": 2, "ÜBERBOAT": 1}
    assert char.unknown_words(texts) == {"ÜBERBOAT": 1}
    assert word.unknown_words(TEXTS) == {}


def test_what_a_decoder_must_not_pass_is_refused(trained):
    tokenizer = Tokenizer.load(trained["word"])
    for bad in (0, -1, tokenizer.size):
        with pytest.raises(ValueError, match="collapse before decoding"):
            tokenizer.decode([2, bad])
    assert tokenizer.decode([tokenizer.sos_eos_id]) == ""


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
def test_a_size_too_large_says_the_largest(tmp_path, kind):
    with pytest.raises(UserError, match="too large for the training text") as error:
        train_tokenizer(TEXTS[:50], tmp_path, kind, 100_000)
    assert not any(tmp_path.iterdir())
    largest = int(re.search(r"(\d+) at most", str(error.value))[1])
    train_tokenizer(TEXTS[:50], tmp_path, kind, largest)
    assert Tokenizer.load(tmp_path).size == largest


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_size_too_small_says_the_smallest(tmp_path, kind):
    with pytest.raises(UserError, match="too small") as error:
        train_tokenizer(TEXTS, tmp_path, kind, 5)
    smallest = int(re.search(r"at least (\d+)", str(error.value))[1])
    train_tokenizer(TEXTS, tmp_path, kind, smallest)
    assert Tokenizer.load(tmp_path).size == smallest


def test_a_small_word_vocabulary_keeps_the_frequent_words(tmp_path):
    train_tokenizer(TEXTS, tmp_path, "word", 20)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.size == 20 and "▁THE" in tokenizer.tokens
    assert len(tokenizer.unknown_words(TEXTS)) > 100


def test_wrong_requests_end_in_a_sentence(tmp_path):
    for arguments, sentence in [
        ((TEXTS, tmp_path, "words", None), "kind 'words'"),
        ((TEXTS, tmp_path, "bpe", None), "needs a size"),
        (([], tmp_path, "word", None), "no text"),
    ]:
        with pytest.raises(UserError, match=sentence):
            train_tokenizer(*arguments)
    with pytest.raises(UserError, match=r"tokenizer\.model: no such file"):
        Tokenizer.load(tmp_path)


def test_a_listing_that_is_not_the_models_is_refused(trained, tmp_path):
    train_tokenizer(TEXTS, tmp_path, "char")
    tokens = (tmp_path / "tokens.txt").read_text().splitlines()
    for changed in ([*tokens[1:], tokens[0]], tokens[:-1], [tokens[1], tokens[0], *tokens[2:]]):
        (tmp_path / "tokens.txt").write_text("\n".join(changed) + "\n")
        with pytest.raises(UserError, match=r"tokens\.txt: is not"):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
@pytest.mark.parametrize(
    "symbol", ["<unk>", "<s>", "</s>", "<blank>", "<sos/eos>", "\u2581", "A\u2581B", "X<unk>Y", "\0"]
)
def test_a_text_with_a_reserved_symbol_is_refused_by_name(tmp_path, kind, symbol):
    """sentencepiece#742: it maps <unk>, <s> and </s> to symbols of its own."""
    with pytest.raises(UserError, match="holds the (reserved symbol|control character)") as error:
        train_tokenizer([*TEXTS, f"YES {symbol} NO"], tmp_path, kind, 150 if kind in ("unigram", "bpe") else None)
    assert "size" not in str(error.value) and "YES" in str(error.value)
    assert not any(tmp_path.iterdir())


def test_a_size_that_nobody_gave_is_not_blamed(tmp_path, monkeypatch):
    """Whatever SentencePiece says of the size that was computed, the person reads of the texts."""
    said = "Vocabulary size too high (9). Please set it to a value <= 8."

    def train(**options):
        raise RuntimeError(f"INTERNAL: {said}")

    for texts, kind in (([f"{'A' * 1_100_000} B", "C"], "word"), (["A B"], "word"), (["A B"], "char")):
        with pytest.raises(UserError, match=r"SentencePiece finds \d of the \d (words|characters) of") as error:
            train_tokenizer(texts, tmp_path, kind)
        assert "size" not in str(error.value) and "None" not in str(error.value)
        monkeypatch.setattr("sentencepiece.SentencePieceTrainer.train", train)


def test_a_word_too_long_for_sentencepiece_is_named(tmp_path):
    for word in ("A" * 70_000, "É" * 40_000, "张" * 25_000):
        with pytest.raises(UserError, match=rf"the longest word has {len(word)} letters \({word[:60]}\.\.\.\)"):
            train_tokenizer(["A B", f"{word} B"], tmp_path, "word")
        assert not any(tmp_path.iterdir())


def test_a_decoded_unknown_is_no_word_of_a_prepared_reference(trained):
    """Preparation refuses <unk> in transcripts, so no reference holds what an unknown decodes to."""
    for kind in ("word", "char", "unigram", "bpe"):
        tokenizer = Tokenizer.load(trained[kind])
        text = tokenizer.decode([2, tokenizer.unk_id, 3])
        assert "<unk>" in text.split() and unfit_text(text)


def test_a_listing_with_a_byte_order_mark_is_read_and_a_damaged_model_named(tmp_path):
    train_tokenizer(TEXTS, tmp_path, "char")
    tokens = Tokenizer.load(tmp_path).tokens
    (tmp_path / "tokens.txt").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "tokens.txt").read_bytes())
    assert Tokenizer.load(tmp_path).tokens == tokens
    (tmp_path / "tokenizer.model").write_bytes((tmp_path / "tokenizer.model").read_bytes()[:100])
    with pytest.raises(UserError, match=r"tokenizer\.model: is no SentencePiece model"):
        Tokenizer.load(tmp_path)
