"""Steps of damage: to bytes, to lines of text, to trees of values, and to the files of a folder."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# texts that file formats, shells, YAML or Unicode treat in a way of their own
TEXTS = (
    "", " ", "\t", "\n", "\r", "\r\n", "\x00", "\x0b", "\x1b[31m", "\x85", "\u2028", "\ufeff", "\u00a0", "\u200b", "\u0301", "İ", "ß",
    "हिन्दी", "張", "😀", "▁", "<unk>", "<s>", "<blank>", "<sos/eos>", "'", '"', "\\", "/", "..", "~", "|", "cat x |", "sp0.9-u1", "-", "--json",
    "null", "true", "nan", "inf", "-1", "0", "1e400", "1_000", "0x10", "٣", "²", "9" * 30, "9" * 5000, "A" * 300, "x" * 100_000, "{", "[", "*", "&a", "!!python/name:os.system",
    "%", "#", ":", "{}", "%s", "$HOME", "$(id)", "../../etc/passwd", "/proc/self/mem",
)  # fmt: skip
# values that a key may be given
VALUES = (
    None, True, False, 0, 1, -1, 2, 3, 7, 10**3, 10**6, 2**31, 2**63, 10**30, 0.0, -0.0, 0.5, 1.0, -1.5, 1e-300, 1e300, math.nan, math.inf,
    -math.inf, "", "a", "1", "1e-3", "null", "..", "a b", "é", "\x00", "x" * 300, [], [None], [0], [1, 1], ["a"], ["a", "a"], [[]], {}, {"a": 1}, {"": None},
)  # fmt: skip
NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**64 - 1,
)


def bytes_step(content: bytes, draw: random.Random, head: int = 64) -> bytes:
    """Content with one thing changed: a bit, a number, a piece cut, doubled, moved or put in; the first `head` bytes more often."""
    if not content:
        return draw.randbytes(draw.choice((1, 4, 64)))
    data = bytearray(content)
    place = draw.randrange(min(len(data), head) if draw.random() < 0.7 else len(data))
    length = draw.choice((1, 2, 4, 8, 16, 100, len(data)))
    match draw.randrange(8):
        case 0:
            data[place] ^= 1 << draw.randrange(8)
        case 1:
            form = draw.choice(("B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
            size = struct.calcsize(form)
            data[place : place + size] = struct.pack(form, draw.choice(NUMBERS) % (1 << 8 * size))
        case 2:
            del data[draw.choice((place, draw.randrange(len(data)), len(data) - 1)) :]
        case 3:
            del data[place : place + length]
        case 4:
            data[place:place] = data[place : place + length]
        case 5:
            data[place:place] = draw.randbytes(min(length, 100))
        case 6:
            data += draw.choice((b"\0", b"\n", b"TAG" + bytes(125), draw.randbytes(50), bytes(data[:head])))
        case 7:
            data[place : place + length] = bytes(len(data[place : place + length]))
    return bytes(data)


def text_step(content: str, draw: random.Random) -> str:
    """Text with one thing changed: a line gone, doubled, moved, joined or cut; a field or a place given an odd text."""
    lines = content.split("\n")
    where = draw.randrange(len(lines))
    odd = draw.choice(TEXTS)
    match draw.randrange(9):
        case 0:
            del lines[where]
        case 1:
            lines.insert(where, lines[draw.randrange(len(lines))])
        case 2:
            draw.shuffle(lines)
        case 3:
            lines[where] = odd
        case 4:
            mark = draw.choice(("\t", " "))
            fields = lines[where].split(mark)
            fields[draw.randrange(len(fields))] = odd
            lines[where] = mark.join(fields)
        case 5:
            mark = draw.choice(("\t", " "))
            fields = lines[where].split(mark)
            del fields[draw.randrange(len(fields))]
            lines[where] = mark.join(fields)
        case 6:
            place = draw.randrange(len(content) + 1)
            return content[:place] + odd + content[place:]
        case 7:
            return content[: draw.randrange(len(content) + 1)]
        case 8:
            return content.replace("\n", draw.choice(("\r\n", "\r", "\n\n", " \n", "\v\n", "")))
    return "\n".join(lines)


def tree_step(value: Any, draw: random.Random, names: Sequence[str] = ()) -> Any:
    """A tree of dictionaries and lists with one thing changed: a value, a key taken out, renamed, added or moved."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            walk(node[key])

    value = json.loads(json.dumps(value))
    walk(value)
    if not places or draw.random() < 0.01:
        return draw.choice(VALUES)
    node, key = draw.choice(places)
    other, other_key = draw.choice(places)
    match draw.randrange(7):
        case 0 | 1:
            node[key] = draw.choice(VALUES)
        case 2:
            del node[key]
        case 3:
            old = node[key]
            node[key] = json.loads(json.dumps(other[other_key]))  # as another place has it
            if draw.random() < 0.3:
                other[other_key] = old
        case 4:
            if isinstance(node, dict):
                name = draw.choice((f"{key}s", str(key)[:-1], str(key).upper(), *names, *map(str, TEXTS[:40])))
                node[name] = node.pop(key)
            else:
                node.append(json.loads(json.dumps(node[key])))
        case 5:
            node[key] = _beside(node[key], draw)
        case 6:
            node[key] = draw.choice(([node[key]], {"a": node[key]}, str(node[key])))
    return value


def _beside(value: Any, draw: random.Random) -> Any:
    """A value of about the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return draw.choice((value + 1, value - 1, -value, value * 1000, float(value), value * 0.5))
        case float():
            return draw.choice((value * 2, -value, value / 1000, int(value) if math.isfinite(value) else 0))
        case str():
            return draw.choice((value + draw.choice(TEXTS), value[1:], value.upper(), draw.choice(TEXTS)))
        case list():
            return draw.choice((value[1:], value + value, value[::-1], []))
        case dict():
            return dict(list(value.items())[1:])
    return draw.choice(VALUES)


def file_step(path: Path, draw: random.Random) -> None:
    """A file changed in its bytes, lines or values, as what it holds allows, or taken away, made a folder, a link or a pipe's end."""
    if not path.is_file() or path.is_symlink():
        return
    if draw.random() < 0.12:
        _misplace(path, draw)
        return
    content = path.read_bytes()
    kind = draw.random()
    try:
        if path.suffix == ".json" and kind < 0.6:
            content = json.dumps(tree_step(json.loads(content), draw)).encode()
        elif path.suffix in (".json", ".jsonl", ".tsv", ".txt", ".yaml", ".scp", "") and kind < 0.85:
            content = text_step(content.decode(), draw).encode()
        else:
            content = bytes_step(content, draw)
    except (ValueError, RecursionError):
        content = bytes_step(content, draw)
    path.write_bytes(content)


def _misplace(path: Path, draw: random.Random) -> None:
    match draw.randrange(5):
        case 0:
            path.unlink()
        case 1:
            path.unlink()
            path.mkdir()
        case 2:
            path.unlink()
            path.symlink_to(path.name)  # leads to itself
        case 3:
            path.write_bytes(b"")
        case 4:
            shutil.copy(path, path.with_name(path.name + ".bak"))
            os.replace(path, path.with_name(draw.choice((path.name.upper(), "é" + path.name))))


def any_file_step(folder: Path, draw: random.Random, pattern: str = "**/*") -> None:
    """One step to one of the files below a folder."""
    files = sorted(path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink())
    if files:
        file_step(draw.choice(files), draw)
