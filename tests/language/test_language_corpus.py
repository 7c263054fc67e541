"""The study's text: published counts on the real WikiText-2, blocks, and what is said of bad files."""

import lzma
import math
import zipfile

import numpy as np
import pytest

from geomix.errors import UserError
from geomix.files import sha256
from geomix.language import text
from geomix.language.corpus import prepare_corpus, read_blocks, read_summary
from geomix.language.perplexity import cross_entropy_of_unigrams, perplexities, unigram_entropy
from geomix.language.text import BERT_VOCABULARY, download, python_documentation, read_text
from geomix.language.wordpiece import encode, load_wordpiece, train_wordpiece


@pytest.fixture(scope="module")
def wikitext(data_dir):
    folder = data_dir / "wikitext-2"
    if not folder.is_dir():
        pytest.skip(f"no WikiText-2 at {folder}")
    return folder


@pytest.fixture(scope="module")
def builtin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("builtin")
    corpus = {"name": "python", "kind": "builtin", "unk": None, "vocabulary": 1000}
    return folder, prepare_corpus(corpus, 128, folder)


@pytest.mark.parametrize(
    "unk, counts",
    [
        pytest.param(None, {"train": 2_392_641, "valid": 260_172, "test": 299_307}, marks=pytest.mark.slow),
        ("[UNK]", {"train": 2_228_766, "valid": 225_018, "test": 253_653}),
    ],
)
def test_wordpiece_counts_of_the_real_wikitext(wikitext, tmp_path, unk, counts):
    vocabulary = wikitext / "bert-base-uncased-vocab.txt"
    assert sha256(vocabulary) == BERT_VOCABULARY[1]
    corpus = {"name": "wikitext-2", "kind": "wikitext", "version": "tokenised", "path": wikitext, "unk": unk}
    summary = prepare_corpus({**corpus, "vocabulary": str(vocabulary)}, 128, tmp_path)
    assert {split: part["tokens"] for split, part in summary["splits"].items()} == counts
    assert summary["vocabulary"] == 30_522
    for part in summary["splits"].values():
        assert part["blocks"] * 129 + part["dropped_tail"] == part["tokens"]
    # unigram entropy of valid and test together: 6.14 nats with <unk> in four pieces; their share is a fifth
    both = np.concatenate([np.load(tmp_path / f"{split}.npy") for split in ("valid", "test")])
    if unk is None:
        assert unigram_entropy(both) == pytest.approx(6.14, abs=0.01)
    else:
        assert 0.04 < summary["splits"]["valid"]["unk_share"] < 0.06


def test_the_wrong_version_is_named(wikitext):
    corpus = {"kind": "wikitext", "version": "raw", "path": wikitext}
    with pytest.raises(UserError, match="has <unk>, so it is not the raw version"):
        read_text(corpus)


def test_damaged_short_and_missing_files_are_named(wikitext, tmp_path):
    corpus = {"kind": "wikitext", "version": "tokenised", "path": tmp_path}
    with pytest.raises(UserError, match="no train text: one of train.txt, "):
        read_text(corpus)
    packed = (wikitext / "train.txt.xz").read_bytes()
    (tmp_path / "train.txt.xz").write_bytes(packed[:-1000])
    with pytest.raises(UserError, match="train.txt.xz: cannot be read as text"):
        read_text(corpus)
    for split in ("train", "valid", "test"):
        words = lzma.decompress((wikitext / f"{split}.txt.xz").read_bytes())
        (tmp_path / f"{split}.txt").write_bytes(words[: len(words) // 2])
    with pytest.raises(UserError, match="the train text has [0-9,]+ words, WikiText-2 has 2,088,628"):
        read_text(corpus)


def test_the_published_archive_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "WORD_COUNTS", {"train": 3, "valid": 2, "test": 4})
    archive = tmp_path / "wikitext-2-raw-v1.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for split, words in (("train", "a b\n"), ("valid", "c\n"), ("test", "d e f\n")):
            file.writestr(f"wikitext-2-raw/wiki.{split}.raw", words)
    corpus = {"kind": "wikitext", "version": "raw", "path": archive}
    assert read_text(corpus) == {"train": "a b\n", "valid": "c\n", "test": "d e f\n"}
    archive.write_bytes(b"not found")
    with pytest.raises(UserError, match="not the WikiText-2 archive"):
        read_text(corpus)


def test_download_keeps_nothing_that_is_not_the_published_file(tmp_path):
    source = tmp_path / "source"
    source.write_text("content")
    target = tmp_path / "target"
    download((source.as_uri(), sha256(source)), target)
    assert target.read_text() == "content"
    with pytest.raises(UserError, match="SHA-256 is "):
        download((source.as_uri(), "0" * 64), tmp_path / "other")
    with pytest.raises(UserError, match="cannot be fetched"):
        download(((tmp_path / "absent").as_uri(), "0" * 64), tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_blocks_tile_the_text(builtin):
    folder, summary = builtin
    blocks = read_blocks(folder, "train", 128)
    tokens = np.load(folder / "train.npy")
    assert blocks.shape == (len(tokens) // 129, 129)
    assert (blocks.ravel() == tokens[: blocks.size]).all()
    assert summary["splits"]["train"]["dropped_tail"] == len(tokens) - blocks.size
    assert read_summary(folder) == summary


def test_builtin_text_needs_nothing_and_its_pieces_spell_it(builtin):
    folder, summary = builtin
    assert summary["vocabulary"] == 1000 and summary["splits"]["train"]["blocks"] > 500
    tokenizer = load_wordpiece(folder / "vocab.txt")
    ids = encode(tokenizer, "The Class Statement, éd.")
    assert tokenizer.decode(ids.tolist()) == "the class statement, ed."
    texts = python_documentation()
    pieces = texts["train"].split()
    assert len(pieces) > 40_000 and not set(texts["valid"].split("\n\n")[0:1]) & set(texts["train"].split("\n\n"))


def test_trained_vocabulary_depends_on_text_and_size_alone(tmp_path):
    lines = python_documentation()["valid"]
    for name in ("a", "b"):
        train_wordpiece([lines], 300, tmp_path / name)
    assert sha256(tmp_path / "a") == sha256(tmp_path / "b")
    with pytest.raises(UserError, match="the text yields [0-9]+ pieces, not 5000"):
        train_wordpiece(["one two three"], 5000, tmp_path / "c")


def test_unk_becomes_one_token_or_four():
    tokenizer = load_wordpiece_of("[UNK]", "<", "un", "##k", ">", "a")
    assert encode(tokenizer, "a <unk> a").tolist() == [5, 1, 2, 3, 4, 5]
    assert encode(tokenizer, "a <unk> a", "[UNK]").tolist() == [5, 0, 5]
    assert encode(tokenizer, "\n \n").tolist() == []
    with pytest.raises(UserError, match="'<none>' is not in the vocabulary"):
        encode(tokenizer, "a", "<none>")


def load_wordpiece_of(*pieces):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        return load_wordpiece(Path(folder) / "vocab.txt")


def test_bad_vocabularies_are_named(tmp_path):
    with pytest.raises(UserError, match="absent.txt: not a vocabulary file"):
        load_wordpiece(tmp_path / "absent.txt")
    with pytest.raises(UserError, match="a piece stands twice"):
        load_wordpiece_of("[UNK]", "a", "a")
    with pytest.raises(UserError, match=r"lacks \[UNK\]"):
        load_wordpiece_of("a")


def test_both_perplexities():
    """Two full batches and a short one whose loss is higher: by batches it counts a third, by tokens a ninth."""
    both = perplexities([2.0, 2.0, 5.0], [4, 4, 1])
    assert both["batch_mean"] == pytest.approx(math.exp(3.0))
    assert both["token"] == pytest.approx(math.exp(21 / 9))


def test_unigram_entropy_by_hand():
    tokens = np.array([0, 0, 1, 3])  # 1/2, 1/4, 1/4: 1.5 bits
    assert unigram_entropy(tokens) == pytest.approx(1.5 * math.log(2))
    # counts with one added: 3, 2, 1, 2 of 8
    assert cross_entropy_of_unigrams(tokens, np.array([2, 0]), 4) == pytest.approx(
        -(math.log(1 / 8) + math.log(3 / 8)) / 2
    )
