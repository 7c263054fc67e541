"""What an audio file's header promises, against what the file holds; decoding is soundfile's.

libsndfile lowers the number of samples to what it finds: a file that an interrupted copy cut short reads as a shorter
recording. Here the size of the samples that the header states is compared with the file's own. A program that writes
into a pipe cannot go back and state the size; it leaves 0 or a number near 2 or 4 GiB. Such a file is read to its end.

Sources: Microsoft's RIFF (1991), EBU Tech 3306 (RF64), Apple's AIFF-C (1991) and Core Audio Format, Sun's .au, NIST
SPHERE, Sony's Wave64, RFC 3533 (Ogg).
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from geomix.errors import UserError

COPY_AGAIN = "the file is damaged, copy it again from its source"

# sizes that programs leave when they write into a pipe: sox 0x7f000000 (AIFF) and 0x7ffff000, arecord 0x80000000,
# GStreamer 0x7fff0000, ffmpeg, mpg123 and lame 0xffffffff, each plus or less a header
_PLACEHOLDERS = (range(0x7F000000, 0x80000100), range(0xFFFF0000, 0x100000000))
_UNSTATED_64 = (0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Promise:
    """Where the samples begin, how many bytes of them the header states, and the fields that state it.

    fields : (offset, struct format, bytes that it counts beside those of the samples, bytes in its unit) of each
    empty : the file holds no sample and says so
    """

    start: int
    size: int
    fields: tuple[tuple[int, str, int, int], ...] = ()
    empty: bool = False

    @property
    def unstated(self) -> bool:
        """The size is what a program leaves that writes into a pipe."""
        if self.size == 0:
            return not self.empty
        return _placeholder(self.size) or self.size in _UNSTATED_64


def _placeholder(size: int) -> bool:
    return any(size in sizes for sizes in _PLACEHOLDERS)


def source_of(path: str | os.PathLike) -> str | BinaryIO:
    """What soundfile is to open for `path`: the path, or its content with the sizes set that a pipe left open.

    Raises
    ------
    UserError
        When the header promises more than the file holds, or an Ogg page is damaged or the last one is missing.
    OSError
        When the file cannot be read.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] == b"OggS":
            _check_ogg(path, file)
            return str(path)
        try:
            promise = _promise(file, head, size)
        except (struct.error, ValueError, LookupError):
            raise UserError(f"{path}: its header cannot be read: {COPY_AGAIN}") from None
    if promise is None:
        return str(path)
    held = size - promise.start
    if not promise.unstated or promise.size == held:
        if promise.size > held:
            raise UserError(f"{path}: {held} of the {promise.size} bytes of samples in its header: {COPY_AGAIN}")
        return str(path)
    if 0 < promise.size < held or not promise.fields:
        return str(path)  # a recording of many hours, or a format whose stated size is not read
    content = bytearray(Path(path).read_bytes())
    for offset, form, beside, unit in promise.fields:
        struct.pack_into(form, content, offset, (held + beside) // unit)
    return io.BytesIO(content)


def _promise(file: BinaryIO, head: bytes, size: int) -> Promise | None:
    """The promise of a header, None for a format that carries no size of its samples (FLAC, MP3) or an unknown one."""
    kind, form = head[:4], head[8:12]
    if kind in (b"RIFF", b"RF64", b"BW64", b"RIFX") and form == b"WAVE":
        return _riff(file, kind, size)
    if kind == b"FORM" and form in (b"AIFF", b"AIFC"):
        return _aiff(file, size)
    if kind in (b".snd", b"dns."):
        order = ">" if kind == b".snd" else "<"
        start, samples = struct.unpack(f"{order}II", head[4:12])
        return Promise(start, samples, ((8, f"{order}I", 0, 1),), empty=samples == 0 and size == start)
    if kind == b"caff":
        return _chunked(file, 8, ">4sq", b"data", size, inside=4)
    if kind == b"riff" and head[24:28] == b"wave":
        return _chunked(file, 40, "<16sQ", b"data", size, align=8, counts_itself=True)
    if head[:8] == b"NIST_1A\n":
        return _sphere(file)
    return None


def _chunks(
    file: BinaryIO, start: int, form: str, size: int, align: int = 1, counts_itself: bool = False
) -> Iterator[tuple[bytes, int, int]]:
    """(id, where its content begins, its stated bytes) of each chunk from `start` on, as far as their heads are there."""
    length = struct.calcsize(form)
    while start + length <= size:
        file.seek(start)
        name, stated = struct.unpack(form, file.read(length))
        stated &= 0xFFFFFFFFFFFFFFFF
        if counts_itself:
            stated = max(stated - length, 0)
        yield name, start + length, stated
        start += length + -(-stated // align) * align


def _chunked(
    file: BinaryIO,
    start: int,
    form: str,
    wanted: bytes,
    size: int,
    *,
    inside: int = 0,
    align: int = 1,
    counts_itself: bool = False,
) -> Promise:
    """The promise of the chunk `wanted`, whose content has `inside` bytes before the samples."""
    for name, begin, stated in _chunks(file, start, form, size, align, counts_itself):
        if name[:4] == wanted:
            field = begin - struct.calcsize(form[0] + form[-1])
            beside = inside + (struct.calcsize(form) if counts_itself else 0)
            samples = stated - inside if inside <= stated < _UNSTATED_64[1] else stated
            return Promise(begin + inside, samples, ((field, form[0] + form[-1], beside, 1),))
    raise ValueError("no samples")


def _riff(file: BinaryIO, kind: bytes, size: int) -> Promise:
    """WAV (RIFF, big-endian RIFX), and RF64 or BW64, whose sizes stand in the chunk ds64."""
    form = ">4sI" if kind == b"RIFX" else "<4sI"
    number = form[0] + "I"
    wide = None
    for name, begin, stated in _chunks(file, 12, form, size, align=2):
        if name == b"ds64":
            file.seek(begin + 8)
            wide = begin + 8, struct.unpack("<Q", file.read(8))[0]
        if name != b"data":
            continue
        if wide and stated == 0xFFFFFFFF:
            where, samples = wide
            return Promise(begin, samples, ((where, "<Q", 0, 1), (where - 8, "<Q", begin - 8, 1)), empty=size == begin)
        empty = stated == 0 and _chunks_follow(file, begin, form, size)
        return Promise(begin, stated, ((begin - 4, number, 0, 1), (4, number, begin - 8, 1)), empty)
    raise ValueError("no samples")


def _chunks_follow(file: BinaryIO, start: int, form: str, size: int) -> bool:
    """Whether nothing but whole chunks lies from `start` to the end: then a size of 0 means that there is no sample."""
    end = start
    for name, begin, stated in _chunks(file, start, form, size, align=2):
        if not (name.isascii() and name.decode("ascii").isprintable()):
            return False
        end = begin + stated + stated % 2
    return size <= end <= size + 1


def _aiff(file: BinaryIO, size: int) -> Promise:
    """AIFF and AIFF-C: the chunk SSND, with 8 bytes before the samples, and the number of frames in COMM."""
    chunks = {name: (begin, stated) for name, begin, stated in _chunks(file, 12, ">4sI", size, align=2)}
    comm = chunks[b"COMM"][0]
    file.seek(comm)
    channels, frames, bits = struct.unpack(">hIh", file.read(8))
    frame = max(channels, 1) * max(-(-bits // 8), 1)
    if b"SSND" not in chunks:
        if frames:
            raise ValueError("no samples")
        return Promise(size, 0, empty=True)  # it may be left out when there is no sample
    begin, stated = chunks[b"SSND"]
    if _placeholder(stated) or stated <= 8:
        fields = ((begin - 4, ">I", 8, 1), (4, ">I", begin, 1), (comm + 2, ">I", 0, frame))
        return Promise(begin + 8, 0, fields, not frames and _chunks_follow(file, begin + 8, ">4sI", size))
    file.seek(8)
    packed = file.read(4) == b"AIFC"  # frames of a compressed file have another size
    return Promise(begin + 8, stated - 8 if packed else max(stated - 8, frames * frame), empty=True)


def _sphere(file: BinaryIO) -> Promise:
    """NIST SPHERE: the second line has the header's length, sample_count the samples of each channel."""
    file.seek(0)
    file.readline()
    start = int(file.readline())
    file.seek(0)
    fields = dict(line.split(maxsplit=2)[::2] for line in file.read(start).split(b"\n") if len(line.split()) >= 3)
    packed = any(law in fields.get(b"sample_coding", b"") for law in (b"ulaw", b"mu-law", b"alaw"))
    each = 1 if packed else int(fields.get(b"sample_n_bytes", 2))
    return Promise(start, int(fields.get(b"sample_count", 0)) * int(fields.get(b"channel_count", 1)) * each)


# Ogg's CRC-32 has zlib's polynomial with the bits of bytes and result the other way round, and starts at 0
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _check_ogg(path: str | os.PathLike, file: BinaryIO) -> None:
    """Every page whole and with its checksum, the last one marked as the end of its stream."""
    file.seek(0)
    last = False
    while head := file.read(27):
        lengths = file.read(head[26]) if len(head) == 27 else b""
        if len(head) < 27 or head[:4] != b"OggS" or len(lengths) < head[26]:
            raise UserError(f"{path}: an Ogg page is cut or damaged: {COPY_AGAIN}")
        body = file.read(sum(lengths))
        page = head[:22] + bytes(4) + head[26:] + lengths + body
        mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
        if len(body) < sum(lengths) or int(f"{mirrored:032b}"[::-1], 2) != int.from_bytes(head[22:26], "little"):
            raise UserError(f"{path}: an Ogg page is cut or damaged: {COPY_AGAIN}")
        last = bool(head[5] & 4)
    if not last:
        raise UserError(f"{path}: its last Ogg page is missing: {COPY_AGAIN}")
