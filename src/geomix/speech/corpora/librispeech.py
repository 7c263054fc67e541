"""LibriSpeech ([Panayotov2015]): folders as published, or downloaded and verified."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from geomix.errors import UserError
from geomix.speech.corpora.folder import listings, read_split

__all__ = ["download", "listings", "published", "read_split"]

# subset -> counts of the published corpus; characters count the spaces
_COUNTS = {
    "train-clean-100": {"utterances": 28_539, "speakers": 251},
    "dev-clean": {"utterances": 2_703, "speakers": 40, "words": 54_402, "characters": 288_456},
    "dev-other": {"utterances": 2_864, "speakers": 33, "words": 50_948, "characters": 265_951},
    "test-clean": {"utterances": 2_620, "speakers": 40, "words": 52_576, "characters": 281_530},
    "test-other": {"utterances": 2_939, "speakers": 33, "words": 52_343, "characters": 272_758},
}

_URL = "https://www.openslr.org/resources/12/"
# SHA-256 of the archives, as torchaudio.datasets.librispeech lists them
_SHA256 = {
    "train-clean-100": "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    "dev-clean": "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    "dev-other": "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    "test-clean": "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    "test-other": "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
}


def published(name: str) -> dict[str, dict[str, int]]:
    """Published counts by subset name; they hold whatever the corpus is called in the config."""
    return _COUNTS


def download(subset: str, folder: str | os.PathLike, url: str = _URL, sha256: str | None = None) -> Path:
    """Download a subset's archive (an interrupted one is continued), verify it and unpack it to `<folder>/<subset>`.

    Parameters
    ----------
    url, sha256 : folder that serves `<subset>.tar.gz` and the archive's hash, for a mirror; default OpenSLR's

    Returns
    -------
    the subset's folder, which appears whole or not at all
    """
    folder = Path(folder)
    sha256 = sha256 or _SHA256.get(subset)
    if sha256 is None:
        raise UserError(f"{subset}: no checksum is known for this subset: give one of {', '.join(_SHA256)}")
    target = folder / subset
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{subset}.tar.gz"
    if not archive.exists():
        part = archive.with_name(archive.name + ".part")
        _fetch(url + archive.name, part)
        part.rename(archive)
    with open(archive, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        archive.unlink()
        raise UserError(f"{archive}: its SHA-256 was {found} instead of {sha256}; it is removed: download it again")
    unpacking = folder / f".{subset}.unpacking"
    shutil.rmtree(unpacking, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(unpacking, filter="data")
        (unpacking / "LibriSpeech" / subset).rename(target)
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)
    archive.unlink()
    return target


def _fetch(url: str, part: Path) -> None:
    """Bring `part` to the whole content of `url`, continuing what it already holds."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            if reply.status != 206:
                have = 0  # the server sends all of it
            size = have + int(reply.headers["Content-Length"])
            print(f"downloading {url}: {size / 1e9:.1f} GB, {have / 1e9:.1f} GB are here already", file=sys.stderr)
            with open(part, "r+b" if have else "wb") as file:
                file.seek(have)
                shutil.copyfileobj(reply, file, 1 << 20)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing left to send
            return
        raise UserError(f"{url}: the server answers {error.code} {error.reason}: try again later or a mirror") from None
    except OSError as error:
        raise UserError(f"{url}: the download broke off ({error}): run it again, it continues from there") from None
    if part.stat().st_size != size:
        raise UserError(f"{url}: {part.stat().st_size} of {size} bytes came: run it again, it continues from there")
