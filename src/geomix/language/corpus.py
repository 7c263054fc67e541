"""A prepared text: token files of the three splits, the vocabulary, and a summary with counts and entropies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.files import atomic_path, read_object, sha256, write_json, write_text
from geomix.language.perplexity import cross_entropy_of_unigrams, unigram_entropy
from geomix.language.text import SPLITS, read_text
from geomix.language.wordpiece import UNK, encode, load_wordpiece, train_wordpiece

VOCABULARY, SUMMARY = "vocab.txt", "corpus.json"
# share of [UNK] in the training tokens beyond which the vocabulary is refused
MOST_UNKNOWN = 0.5
# what a training reads of the summary
_NEEDED = (
    ("name",), ("vocabulary",), ("unigram_entropy",), *(("hashes", split) for split in SPLITS),
    *(("splits", split, key) for split in SPLITS for key in ("tokens", "unigram_cross_entropy")),
)  # fmt: skip

# (version, unk, vocabulary's SHA-256) -> WordPiece counts of WikiText-2 that must come out (measured with tokenizers 0.23)
_BERT = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
KNOWN_COUNTS = {
    ("tokenised", None, _BERT): {"train": 2_392_641, "valid": 260_172, "test": 299_307},
    ("tokenised", "[UNK]", _BERT): {"train": 2_228_766, "valid": 225_018, "test": 253_653},
}


def prepare_corpus(corpus: dict[str, Any], folder: str | Path) -> dict[str, Any]:
    """Tokenise `corpus` into `folder` (train.npy, valid.npy, test.npy, vocab.txt, corpus.json) and return the summary.

    Parameters
    ----------
    corpus
        As `language.corpus` in the config: what `text.read_text` takes, `unk`, and `vocabulary`, a file or the number of
        pieces to train on the train split ("<unk>" left out).

    Raises
    ------
    UserError
        For bad input, token counts other than the known ones, or a vocabulary that does not spell the text.
    """
    folder = Path(folder)
    texts = read_text(corpus)
    vocabulary = folder / VOCABULARY
    source = corpus["vocabulary"]
    if isinstance(source, int):
        train_wordpiece([texts["train"].replace("<unk>", " ")], source, vocabulary)
    else:
        load_wordpiece(source)  # refused here if it is none
        write_text(vocabulary, Path(source).read_text(encoding="utf-8"))
    tokenizer = load_wordpiece(vocabulary)
    tokens = {split: encode(tokenizer, texts[split], corpus.get("unk")) for split in SPLITS}

    known = KNOWN_COUNTS.get((corpus.get("version"), corpus.get("unk"), sha256(vocabulary)))
    counts = {split: len(ids) for split, ids in tokens.items()}
    if known and counts != known:
        raise UserError(f"{corpus['name']}: {counts} tokens, known are {known}: the text or tokenizers has changed")
    unk = tokenizer.token_to_id(UNK)
    unknown = float((tokens["train"] == unk).mean())
    if unknown > MOST_UNKNOWN:
        raise UserError(
            f"{vocabulary if isinstance(source, int) else source}: {unknown:.0%} of the training tokens are {UNK}: give a "
            "vocabulary that spells the text (language.corpus.vocabulary)"
        )
    for split, ids in tokens.items():
        with atomic_path(folder / f"{split}.npy") as temporary, open(temporary, "wb") as file:
            np.save(file, ids)
    summary = _summary(corpus, tokens, vocabulary, tokenizer.get_vocab_size(), unk)
    write_json(folder / SUMMARY, summary)
    return summary


def _summary(
    corpus: Mapping[str, Any], tokens: Mapping[str, np.ndarray], vocabulary: Path, size: int, unk: int
) -> dict[str, Any]:
    """The content of corpus.json: counts, entropies and hashes of a text in `size` pieces, `unk` the unknown one's number."""
    return {
        "name": corpus["name"],
        "kind": corpus["kind"],
        "version": corpus.get("version"),
        "unk": corpus.get("unk"),
        "vocabulary": size,
        "splits": {
            split: {
                "tokens": len(ids),
                "unk_share": round(float((ids == unk).mean()), 5),
                "unigram_cross_entropy": round(cross_entropy_of_unigrams(tokens["train"], ids, size), 5),
            }
            for split, ids in tokens.items()
        },
        "unigram_entropy": round(unigram_entropy(tokens["train"]), 5),
        "hashes": {
            "vocabulary": sha256(vocabulary),
            **{split: hashlib.sha256(ids.tobytes()).hexdigest() for split, ids in tokens.items()},
        },
    }


def read_blocks(folder: str | Path, split: str, block: int) -> np.ndarray:
    """The split as (blocks, block + 1) int32: tokens [:, :-1] predict [:, 1:]. Blocks do not overlap, the tail is dropped.

    Raises
    ------
    UserError
        For a file that is not the one of which corpus.json has the hash, or one that is shorter than a block.
    """
    path = Path(folder) / f"{split}.npy"
    expected = read_summary(folder)["hashes"][split]
    try:
        _, _, content = path.read_bytes().partition(b"\n")  # a line of header, then the array's bytes
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): remove what is there and run again") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise UserError(f"{path}: is not the file that preparation wrote: remove it and run again")
    tokens = np.frombuffer(content, dtype=np.int32)
    count = len(tokens) // (block + 1)
    if not count:
        raise UserError(
            f"{path}: {len(tokens)} tokens are less than a block of {block} + 1: lower language.model.positions"
        )
    return tokens[: count * (block + 1)].reshape(count, block + 1).copy()  # torch wants it writable


def read_summary(folder: str | Path) -> dict[str, Any]:
    """corpus.json of a prepared corpus; a `UserError` names the key that it lacks."""
    path = Path(folder) / SUMMARY
    summary = read_object(path)
    for keys in _NEEDED:
        value = summary
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                raise UserError(f"{path}: has no {'.'.join(keys)!r}: remove it and run again")
            value = value[key]
    return summary


def count_blocks(summary: dict[str, Any], block: int) -> dict[str, Any]:
    """The summary with the block length, and the blocks and tokens left over of each split."""
    splits = {
        split: {**part, "blocks": part["tokens"] // (block + 1), "dropped_tail": part["tokens"] % (block + 1)}
        for split, part in summary["splits"].items()
    }
    return {**summary, "block": block, "splits": splits}
