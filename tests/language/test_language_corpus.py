"""The study's text: published counts on the real WikiText-2, blocks, and what is said of bad files."""

import copy
import lzma
import math
import shutil
import zipfile

import numpy as np
import pytest

from geomix.errors import UserError
from geomix.files import sha256, write_json
from geomix.language import text
from geomix.language.corpus import count_blocks, prepare_corpus, read_blocks, read_summary
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
    return folder, prepare_corpus(corpus, folder)


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
    summary = prepare_corpus({**corpus, "vocabulary": str(vocabulary)}, tmp_path)
    assert {split: part["tokens"] for split, part in summary["splits"].items()} == counts
    assert summary["vocabulary"] == 30_522
    for part in count_blocks(summary, 128)["splits"].values():
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
    with pytest.raises(UserError, match=r"not the WikiText-2 archive .*: give the published one"):
        read_text(corpus)
    # only what geomix fetched itself is removed
    monkeypatch.setattr(text, "FETCHED_ARCHIVE", str(archive))
    with pytest.raises(UserError, match="remove it to have it fetched again"):
        read_text(corpus)


@pytest.mark.parametrize("fault", ["utf-8", "deflate"])
def test_a_damaged_archive_is_named(tmp_path, fault):
    archive = tmp_path / "wikitext.zip"
    words = bytes(range(128, 256)) if fault == "utf-8" else b"a b c d " * 50
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for split in ("train", "valid", "test"):
            file.writestr(f"wiki.{split}.raw", words)
    if fault == "deflate":
        data = archive.read_bytes()
        start = 30 + len("wiki.train.raw")  # behind the first entry's header
        archive.write_bytes(data[:start] + b"\xff" * 8 + data[start + 8 :])
    with pytest.raises(UserError, match="wikitext.zip: not the WikiText-2 archive"):
        read_text({"kind": "wikitext", "version": "raw", "path": archive})


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
    counted = count_blocks(summary, 128)["splits"]["train"]
    assert (counted["blocks"], counted["dropped_tail"]) == (len(blocks), len(tokens) - blocks.size)
    assert read_summary(folder) == summary
    with pytest.raises(UserError, match=r"valid.npy: [0-9]+ tokens are less than a block of 999999 \+ 1"):
        read_blocks(folder, "valid", 999_999)


@pytest.mark.parametrize(
    "write",
    [
        lambda tokens, file: np.save(file, tokens > 5),
        lambda tokens, file: np.save(file, tokens.astype(np.float32)),
        lambda tokens, file: np.save(file, tokens.astype(np.int64)),
        lambda tokens, file: np.save(file, tokens[::-1]),
        lambda tokens, file: np.save(file, tokens[:-1]),
        lambda tokens, file: np.save(file, tokens + 100_000),
        lambda tokens, file: np.save(file, np.array([{}]), allow_pickle=True),
        lambda tokens, file: np.savez(file, tokens),
        lambda tokens, file: file.write(b""),
        lambda tokens, file: file.write(b"\x93NUMPY\x01\x00v\x00{"),
    ],
    ids=["bool", "float", "int64", "reversed", "cut", "shifted", "pickle", "zip", "empty", "header"],
)
def test_a_token_file_that_preparation_did_not_write_is_refused(builtin, tmp_path, write):
    shutil.copytree(builtin[0], tmp_path, dirs_exist_ok=True)
    tokens = np.load(tmp_path / "valid.npy")
    with open(tmp_path / "valid.npy", "wb") as file:
        write(tokens, file)
    with pytest.raises(UserError, match="valid.npy: is not the file that preparation wrote: remove it and run again"):
        read_blocks(tmp_path, "valid", 128)
    read_blocks(tmp_path, "test", 128)


def test_a_missing_token_file_and_a_folder_in_its_place_are_named(builtin, tmp_path):
    shutil.copy(builtin[0] / "corpus.json", tmp_path)
    (tmp_path / "valid.npy").mkdir()
    for split in ("train", "valid"):
        with pytest.raises(UserError, match=f"{split}.npy: cannot be read"):
            read_blocks(tmp_path, split, 128)


@pytest.mark.parametrize(
    "key", ["vocabulary", "unigram_entropy", "hashes.train", "splits.valid", "splits.valid.tokens"]
)
def test_a_summary_without_a_key_is_named(builtin, tmp_path, key):
    summary = copy.deepcopy(builtin[1])
    *parents, last = key.split(".")
    place = summary
    for parent in parents:
        place = place[parent]
    del place[last]
    write_json(tmp_path / "corpus.json", summary)
    with pytest.raises(UserError, match=f"corpus.json: has no '{key}"):
        read_summary(tmp_path)


def test_builtin_text_needs_nothing_and_its_pieces_spell_it(builtin):
    folder, summary = builtin
    assert summary["vocabulary"] == 1000 and summary["splits"]["train"]["tokens"] > 64_500
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
    with pytest.raises(UserError, match=r"vocab.txt: the vocabulary lacks \[UNK\]"):
        load_wordpiece_of("a")
    with pytest.raises(UserError, match="not a vocabulary file .*directory"):
        load_wordpiece(tmp_path)


@pytest.mark.parametrize("pieces", [["[UNK]"], ["[UNK]", "the", "."]])
def test_a_vocabulary_that_does_not_spell_the_text_is_refused(tmp_path, pieces):
    (tmp_path / "few.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    corpus = {"name": "python", "kind": "builtin", "vocabulary": str(tmp_path / "few.txt")}
    with pytest.raises(UserError, match=r"few.txt: [0-9]+% of the training tokens are \[UNK\]"):
        prepare_corpus(corpus, tmp_path / "out")
    assert not (tmp_path / "out" / "train.npy").exists()


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
