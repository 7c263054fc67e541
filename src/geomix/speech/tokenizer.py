"""SentencePiece tokenizers in ESPnet's token layout: `<blank>` 0, `<unk>` 1, pieces, `<sos/eos>` last."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from geomix import files
from geomix.errors import UserError
from geomix.speech.manifest import read_lines, unfit_text

BLANK, UNK, SOS_EOS = "<blank>", "<unk>", "<sos/eos>"
KINDS = ("unigram", "bpe", "char", "word")
# SentencePiece's own ids 0, 1, 2 are <unk>, <s>, </s>; its pieces begin at 3 and ours at 2
_FIRST_PIECE = 3
_SHIFT = 1


def train_tokenizer(
    texts: Iterable[str], folder: str | os.PathLike, kind: str = "unigram", size: int | None = None
) -> None:
    """Train a tokenizer on `texts` and write `tokenizer.model` and `tokens.txt` to `folder`.

    Parameters
    ----------
    kind : unigram or bpe (a `size` is needed), char or word (without `size`: every character or word of the texts)
    size : number of tokens, `<blank>`, `<unk>` and `<sos/eos>` included, as ESPnet's recipes count (nbpe)

    The same texts give the same tokenizer. Texts are not normalised; words are separated by single spaces.
    """
    texts = [text for text in texts if text]
    if kind not in KINDS:
        raise UserError(f"tokenizer kind {kind!r}: give one of {', '.join(KINDS)}")
    if not texts:
        raise UserError(f"{folder}: no text to train a tokenizer on: check the training manifest")
    if size is None and kind in ("unigram", "bpe"):
        raise UserError(f"tokenizer kind {kind}: needs a size: add it to the config, 300 for instance")
    for text in texts:
        if unfit := unfit_text(text):
            raise UserError(f"the training text {_shown(text)!r} holds {unfit}, which a tokenizer loses: spell it out")
    units = len({unit for text in texts for unit in (text.split() if kind == "word" else text.replace(" ", "▁"))})
    if kind == "char" and not any(" " in text for text in texts):
        units += 1  # the word mark stands before the first word too
    largest = units + 3 if kind in ("char", "word") else None
    if largest is not None and (size or largest) > largest:
        raise UserError(_too_large(kind, size, largest))
    model = _train(texts, kind, size, size or largest, units)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        word = max((word for text in texts for word in text.split()), key=len)
        raise UserError(
            f"tokenizer of kind {kind}: SentencePiece cannot load its own model ({_one_line(error)}); the longest word has "
            f"{len(word)} letters ({_shown(word)}): split it in its transcript, or take another kind"
        ) from None
    pieces = [processor.id_to_piece(i) for i in range(_FIRST_PIECE, processor.get_piece_size())]
    with files.atomic_path(Path(folder) / "tokenizer.model") as temporary:
        temporary.write_bytes(model)
    files.write_text(Path(folder) / "tokens.txt", "\n".join([BLANK, UNK, *pieces, SOS_EOS]) + "\n")


def _train(texts: Sequence[str], kind: str, asked: int | None, size: int, units: int) -> bytes:
    """A SentencePiece model of `size` tokens; `asked` is the size that the person gave, `units` what the texts hold."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            character_coverage=1.0,
            normalization_rule_name="identity",
            max_sentence_length=1 << 20,
            # a fixed number of threads: the order of the sums in training depends on it, and so may the pieces
            num_threads=4,
            minloglevel=2,
        )
    except RuntimeError as error:
        limit = re.search(r"<= (\d+)", str(error))
        if limit and asked is None:
            raise UserError(
                f"tokenizer of kind {kind}: SentencePiece finds {int(limit[1]) - 3} of the {units} {_UNITS[kind]} of the "
                "training text: look for odd symbols or a transcript of megabytes in it"
            ) from None
        if limit:
            raise UserError(_too_large(kind, asked, int(limit[1]))) from None
        if asked and ("required_chars" in str(error) or "smaller" in str(error)):
            raise UserError(f"tokenizer size {asked}: too small, give at least {units + 3}") from None
        wanted = f"kind {kind}" + (f" and size {asked}" if asked else "")
        raise UserError(f"tokenizer of {wanted}: SentencePiece says {_one_line(error)}") from None
    return model.getvalue()


_UNITS = {"word": "words", "char": "characters"}


def _too_large(kind: str, size: int | None, largest: int) -> str:
    return f"tokenizer size {size}: too large for the training text, {kind} gives {largest} at most: lower the size"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _shown(text: str) -> str:
    """A text, or the beginning of a long one."""
    return text if len(text) <= 60 else f"{text[:60]}..."


def copy_tokenizer(folder: str | os.PathLike, out: str | os.PathLike) -> None:
    """Copy a tokenizer's two files into another folder, each whole."""
    for name in ("tokenizer.model", "tokens.txt"):
        with files.atomic_path(Path(out) / name) as temporary:
            temporary.write_bytes((Path(folder) / name).read_bytes())


class Tokenizer:
    """Text to token ids and back, `size` tokens in all."""

    blank_id = 0
    unk_id = 1

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, tokens: Sequence[str]):
        self._processor = processor
        self.tokens = list(tokens)
        self.size = len(self.tokens)
        self.sos_eos_id = self.size - 1

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Tokenizer:
        """Load `tokenizer.model` and `tokens.txt` of a folder; both must agree and keep the layout."""
        model, listing = Path(folder) / "tokenizer.model", Path(folder) / "tokens.txt"
        for path in (model, listing):
            if not path.exists():
                raise UserError(f"{path}: no such file: train the tokenizer first")
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
            pieces = [processor.id_to_piece(i) for i in range(_FIRST_PIECE, processor.get_piece_size())]
        except (RuntimeError, OSError, ValueError) as error:
            raise UserError(
                f"{model}: is no SentencePiece model ({_one_line(error)}): train the tokenizer again"
            ) from None
        tokens = read_lines(listing, "train the tokenizer first")
        if tokens != [BLANK, UNK, *pieces, SOS_EOS]:
            raise UserError(
                f"{listing}: is not {BLANK}, {UNK}, the pieces of tokenizer.model in their order, {SOS_EOS}: "
                "train the tokenizer again"
            )
        return cls(processor, tokens)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without blank, start or end; what the vocabulary lacks becomes `unk_id`."""
        return [i - _SHIFT if i else self.unk_id for i in self._processor.encode(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids (blanks already dropped); an unknown reads `<unk>`, `<sos/eos>` carries no text."""
        return " ".join(word for word, _ in self.words(ids))

    def words(self, ids: Iterable[int]) -> list[tuple[str, list[int]]]:
        """The words of token ids, as `decode` joins them, each with the positions in `ids` of the tokens that spell it."""
        words: list[tuple[str, list[int]]] = []
        inside = False
        for position, token in enumerate(ids):
            if not self.blank_id < token < self.size:
                raise ValueError(f"token id {token} is blank or outside 1..{self.size - 1}: collapse before decoding")
            piece = {self.unk_id: f"▁{UNK}▁", self.sos_eos_id: ""}.get(token, self.tokens[token])
            for part in re.split(r"(▁|\s)", piece):
                if not part:
                    continue
                if part == "▁" or part.isspace():
                    inside = False
                elif inside:
                    word, positions = words[-1]
                    words[-1] = (word + part, positions if positions[-1] == position else [*positions, position])
                else:
                    words.append((part, [position]))
                    inside = True
        return words

    def unknown_words(self, texts: Iterable[str]) -> dict[str, int]:
        """Words of `texts` that the vocabulary cannot spell, with their counts: a reference that holds one is lost."""
        counts: dict[str, int] = {}
        known: dict[str, bool] = {}
        for text in texts:
            for word in text.split():
                if word not in known:
                    known[word] = self.unk_id not in self.encode(word)
                if not known[word]:
                    counts[word] = counts.get(word, 0) + 1
        return counts
