"""WordPiece as bert-base-uncased has it (lower case, no accents, no special tokens), from a file or trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from geomix.errors import UserError
from geomix.files import write_text

UNK = "[UNK]"


def load_wordpiece(vocabulary: str | Path):
    """A `tokenizers.Tokenizer` for a vocabulary file with one piece a line; line n is token n."""
    pieces = _read_pieces(Path(vocabulary))
    return _tokenizer({piece: i for i, piece in enumerate(pieces)})


def train_wordpiece(texts: Iterable[str], size: int, vocabulary: str | Path, characters: int = 200) -> None:
    """Train `size` WordPiece units on `texts` and write them, one a line, to `vocabulary`.

    The pieces and their order depend on the texts and the sizes alone. The trainer of `tokenizers` numbers single
    characters in the order of a hash map and breaks ties between merges by those numbers, so that two runs differ;
    given the characters in a fixed order first, it has nothing left to draw.

    Parameters
    ----------
    characters
        How many of the most frequent characters are spelled; words with another one become [UNK].
    """
    from tokenizers.trainers import WordPieceTrainer

    tokenizer = _tokenizer({UNK: 0})
    words = Counter(
        word
        for text in texts
        for line in text.splitlines()
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(line))
    )
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for character in word:
            counts[character] += times
    alphabet = set(sorted(counts, key=lambda c: (-counts[c], c))[:characters])
    spelled = {word: times for word, times in sorted(words.items()) if alphabet.issuperset(word)}
    singles = {word[0] for word in spelled} | {f"##{c}" for word in spelled for c in word[1:]}
    trainer = WordPieceTrainer(vocab_size=size, special_tokens=[UNK, *sorted(singles)], show_progress=False)
    tokenizer.train_from_iterator((" ".join([word] * times) for word, times in spelled.items()), trainer)
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if len(pieces) != size:
        raise UserError(
            f"{vocabulary}: the text yields {len(pieces)} pieces, not {size}: change language.corpus.vocabulary"
        )
    write_text(vocabulary, "".join(f"{piece}\n" for piece, _ in pieces))


def encode(tokenizer, text: str, unk: str | None = None) -> np.ndarray:
    """Token ids of `text` as an int32 array; line ends and blanks leave no token.

    With `unk` (a piece, for instance "[UNK]") each "<unk>" of the text becomes that one token. Left as it stands it
    becomes the four pieces < un ##k >, which are a fifth of all tokens of WikiText-2's tokenised version.
    """
    if unk is not None:
        if tokenizer.token_to_id(unk) is None:
            raise UserError(f"language.corpus.unk: {unk!r} is not in the vocabulary: name one of its pieces or null")
        tokenizer.add_special_tokens([unk])  # matched before the text is split at punctuation
        text = text.replace("<unk>", unk)
    lines = tokenizer.encode_batch_fast(text.splitlines(), add_special_tokens=False)
    return np.concatenate([np.asarray(line.ids, dtype=np.int32) for line in lines] or [np.empty(0, np.int32)])


def _tokenizer(vocabulary: dict[str, int]):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNK, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _read_pieces(path: Path) -> list[str]:
    try:
        pieces = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a vocabulary file ({error}): give one with one piece a line") from None
    if len(set(pieces)) != len(pieces):
        raise UserError(f"{path}: a piece stands twice: give a vocabulary file with one piece a line")
    if UNK not in pieces:
        raise UserError(f"{path}: the vocabulary lacks {UNK}: give a WordPiece vocabulary with one piece a line")
    return pieces
