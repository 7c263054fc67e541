"""Where the study's text comes from: WikiText-2 (raw or tokenised) or the documentation every CPython carries."""

from __future__ import annotations

import lzma
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path

from geomix.errors import UserError
from geomix.files import atomic_path, sha256

SPLITS = ("train", "valid", "test")

# pinned downloads: url -> SHA-256. The WikiText archive is the one that the Hugging Face `wikitext` dataset names.
RAW_ARCHIVE = (
    "https://huggingface.co/datasets/ggml-org/ci/resolve/927b3642933080f1b0e811e2f916e14c292992f9/"
    "wikitext-2-raw-v1.zip",
    "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
)
BERT_VOCABULARY = (
    "https://huggingface.co/bert-base-uncased/resolve/main/vocab.txt",
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)

# where the workflow puts the archive when the config gives no path
FETCHED_ARCHIVE = "data/language/wikitext-2-raw-v1.zip"

# word tokens of WikiText-2 with one end of line a line ([Merity2016], table 1); both versions
# have the same words, the tokenised one with 13 thousand rare types replaced by <unk>
WORD_COUNTS = {"train": 2_088_628, "valid": 217_646, "test": 245_569}

_FILE_NAMES = ("{split}.txt", "{split}.txt.xz", "wiki.{split}.raw", "wiki.{split}.tokens")


def read_text(corpus: dict) -> dict[str, str]:
    """The corpus's three splits, split name -> text.

    Parameters
    ----------
    corpus
        `kind: wikitext` with `path` (a folder that holds train, valid and test as one of `{split}.txt`,
        `{split}.txt.xz`, `wiki.{split}.raw` or `wiki.{split}.tokens`, or the published zip archive) and
        `version` (`raw` or `tokenised`); or `kind: builtin`.

    Raises
    ------
    UserError
        For a missing or damaged file, a version that is not the one named, or another word count than the published.
    """
    if corpus["kind"] == "builtin":
        return python_documentation()
    path = Path(corpus["path"])
    texts = _read_archive(path) if path.suffix == ".zip" else {s: _read_split(path, s) for s in SPLITS}
    for split, text in texts.items():
        has_unk = "<unk>" in text
        if has_unk != (corpus["version"] == "tokenised"):
            raise UserError(
                f"{path}: the {split} text {'has' if has_unk else 'lacks'} <unk>, so it is not the {corpus['version']} "
                f"version: set language.corpus.version to {'tokenised' if has_unk else 'raw'} or give the other files"
            )
        words = sum(len(line.split()) + 1 for line in text.splitlines())
        if words != WORD_COUNTS[split]:
            raise UserError(
                f"{path}: the {split} text has {words:,} words, WikiText-2 has {WORD_COUNTS[split]:,}: fetch it again"
            )
    return texts


def _read_split(folder: Path, split: str) -> str:
    for name in _FILE_NAMES:
        file = folder / name.format(split=split)
        if file.is_file():
            try:
                data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
                return data.decode("utf-8")
            except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
                raise UserError(f"{file}: cannot be read as text ({error}): fetch it again") from None
    names = ", ".join(name.format(split=split) for name in _FILE_NAMES)
    raise UserError(f"{folder}: no {split} text: one of {names} must be there (language.corpus.path)")


def _read_archive(path: Path) -> dict[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {n.rsplit("/", 1)[-1]: n for n in archive.namelist()}
            return {s: archive.read(names[f"wiki.{s}.raw"]).decode("utf-8") for s in SPLITS}
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError, UnicodeDecodeError) as error:
        fetched = path == Path(FETCHED_ARCHIVE)
        cure = "remove it to have it fetched again" if fetched else "give the published one (language.corpus.path)"
        raise UserError(f"{path}: not the WikiText-2 archive ({error}): {cure}") from None


def python_documentation() -> dict[str, str]:
    """Python's own documentation topics (`pydoc_data.topics`, PSF licence), split 8 : 1 : 1 by whole topics.

    About 460 kB of technical English that every CPython carries. The topics are taken in alphabetical order, each
    tenth one for valid and the one after it for test, so that the split depends on nothing but Python's version.
    """
    from pydoc_data.topics import topics

    parts: dict[str, list[str]] = {s: [] for s in SPLITS}
    for index, name in enumerate(sorted(topics)):
        parts[{0: "valid", 1: "test"}.get(index % 10, "train")].append(topics[name])
    return {s: "\n".join(p) for s, p in parts.items()}


def download(source: tuple[str, str], path: Path) -> None:
    """Fetch `source` (URL, SHA-256) to `path`, whole and checked or not at all.

    Raises
    ------
    UserError
        When the address cannot be reached, or what it sends is not what was published.
    """
    url, expected = source
    with atomic_path(path) as temporary:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, open(temporary, "wb") as file:
                while block := answer.read(1 << 20):
                    file.write(block)
        except (urllib.error.URLError, OSError) as error:
            raise UserError(
                f"{url}: cannot be fetched ({error}): place the file at {path} or give a local path in the config"
            ) from None
        found = sha256(temporary)
        if found != expected:
            raise UserError(f"{url}: SHA-256 is {found}, not {expected}: the file was changed or cut, try again")
