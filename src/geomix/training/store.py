"""The store of trainings: `state/<hash>/` holds one, whichever run asks for it, and says who does.

A folder is named by the hash of a training's settings and of the data it reads. Beside what the trainer keeps there it holds

    settings.json   {"settings": ..., "data": {name: hash}}
    users.json      sorted list of {"run", "track", "arm", "seed"}: the runs that claim the training
    finished.json   {"finished": when, "epochs": {"1": {"dev_cer": ..., ...}, ...}, "origin": {"commit": ..., ...}}, once it
                    is trained to its end
    lock            held while a job works here

Nothing here imports torch: `geomix status` and `geomix forget` read the store too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import folder_lock, read_object, read_objects, write_json
from geomix.settings import settings_hash
from geomix.training.averaging import Metrics, Selection, epochs_of
from geomix.training.progress import say
from geomix.training.record import now, parse_part, plain_part
from geomix.training.schedules import FREE_OF_EPOCHS

SETTINGS, USERS, FINISHED, LOCK = "settings.json", "users.json", "finished.json", "lock"
_HASH = re.compile(r"[0-9a-f]{12}")
_COPY = ".copy"  # a copy of a shorter training on its way into a folder


@dataclass(frozen=True, order=True)
class User:
    """One that claims a training: an arm and seed of a run, on a track."""

    run: str
    track: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """How the training is called within its run."""
        return f"{self.track}/{self.arm}/seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.run}/{self.name}"


@dataclass(frozen=True)
class Layout:
    """How a trainer names its files in a state folder.

    checkpoints : the resumable states, the newest first; a folder without any has not been trained in
    weights : name of an epoch's weights, with {} for the epoch
    beside : patterns of what else belongs to a training that goes on
    relabel : writes a checkpoint at another path as that of a training of another hash, of so many epochs; None: a plain
        copy serves
    """

    checkpoints: tuple[str, ...]
    weights: str
    beside: tuple[str, ...]
    relabel: Callable[[Path, Path, str, int], None] | None = None

    def trained_in(self, folder: Path) -> bool:
        """Whether a training began in `folder`."""
        return any((folder / name).exists() for name in self.checkpoints)


@dataclass(frozen=True)
class Request:
    """What a training asks of the store.

    settings, data_hashes : all that decides its weights
    selection : of the epochs that it keeps
    schedule : name of its learning rate's schedule; None: it never goes on from a shorter training
    """

    settings: Mapping[str, Any]
    data_hashes: Mapping[str, str]
    user: User
    layout: Layout
    selection: Selection
    schedule: str | None


@dataclass(frozen=True)
class State:
    """An opened state folder, locked; `restored` says that the training in it was finished before."""

    folder: Path
    restored: bool

    def finish(self, epochs: Metrics, *origin: Any) -> tuple[Any, ...]:
        """Note that the training has come to its end, with the dev metrics of its epochs, and return its origin.

        origin : parts of a run record (`record.Origin`, ...): what the job that trained has to say of itself. A restored
            training keeps those of the job that finished it: a record names the code that made the weights, not the code
            that read them.
        """
        path = self.folder / FINISHED
        if not path.exists():
            values = {key: value for part in origin for key, value in plain_part(part).items()}
            write_json(path, {"finished": now(), "epochs": plain(epochs), "origin": values})
        values = _finished(self.folder)["origin"]
        return tuple(parse_part(type(part), values, path) for part in origin)


@dataclass(frozen=True)
class Stored:
    """What a state folder says of itself; `finished` is None while its training has not come to its end."""

    folder: Path
    users: tuple[User, ...]
    settings: Mapping[str, Any]
    data_hashes: Mapping[str, str]
    finished: str | None


@dataclass(frozen=True)
class Forgotten:
    """What `forget` did: claims dropped, folders removed, and those kept because others claim them."""

    dropped: tuple[User, ...]
    removed: tuple[Path, ...]
    kept: tuple[Stored, ...]


def plain(epochs: Metrics) -> dict[str, dict[str, float | None]]:
    """Dev metrics of epochs as JSON can hold them: the keys that begin with dev_, NaN and infinities as null."""
    return {
        str(epoch): {
            key: value if value is not None and math.isfinite(value) else None
            for key, value in values.items()
            if key.startswith("dev_")
        }
        for epoch, values in sorted(epochs.items())
    }


def state_folder(root: Path, settings: Mapping[str, Any], data_hashes: Mapping[str, str]) -> Path:
    """Folder of a training: <root>/<hash of its settings and of the prepared data it reads>."""
    return Path(root) / settings_hash(dict(settings), dict(data_hashes))


@contextlib.contextmanager
def opened(root: Path, request: Request) -> Iterator[State]:
    """The training's state folder, locked and claimed for the block; a new one may begin as a copy of a shorter training.

    Raises `UserError` when another job works there.
    """
    root, name = Path(root), request.user.name
    folder = state_folder(root, request.settings, request.data_hashes)
    _tell_of_earlier_versions(root)
    with folder_lock(folder, f"training {name}"):
        claim(folder, request.user, request.settings, request.data_hashes)
        _tidy(folder, request.layout)
        restored = (folder / FINISHED).exists()
        if restored:
            say(_restored(name, folder))
        elif not request.layout.trained_in(folder):
            _go_on_from_shorter(root, folder, request)
        yield State(folder, restored)


def _restored(name: str, folder: Path) -> str:
    claims = sorted({(user.run, user.arm) for user in read_users(folder)})
    cure = " and ".join(f"`geomix forget {run} {arm}`" for run, arm in claims)
    when = _finished(folder)["finished"]
    return f"{name}: restored, finished on {when} in {folder}; {cure} {'remove' if claims[1:] else 'removes'} it to train anew"


@functools.cache  # once a process
def _tell_of_earlier_versions(root: Path) -> None:
    others = (path for path in _folders(root) if not _HASH.fullmatch(path.name))
    if old := sorted(str(path) for path in others if any(path.glob("*/*/seed*"))):
        say(f"{', '.join(old)}: states of an earlier geomix, which are not read: they may be removed")


def _folders(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from (path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def claim(folder: Path, user: User, settings: Mapping[str, Any], data_hashes: Mapping[str, str]) -> None:
    """Write what the training in `folder` is and add `user` to those who claim it; the caller holds the folder's lock."""
    write_json(folder / SETTINGS, {"settings": settings, "data": data_hashes})
    write_users(folder, {*read_users(folder), user})


def read_users(folder: Path) -> tuple[User, ...]:
    """Those who claim the training in `folder`, sorted."""
    path = folder / USERS
    if not path.exists():
        return ()
    fields = {"run": str, "track": str, "arm": str, "seed": int}
    entries = read_objects(path, *fields)
    if not all(isinstance(entry[key], kind) for entry in entries for key, kind in fields.items()):
        raise UserError(
            f"{path}: not a list of runs, each with run, track, arm and seed: write the runs that claim this training there, "
            "or [] if none does"
        )
    return tuple(sorted(User(**{key: entry[key] for key in fields}) for entry in entries))


def write_users(folder: Path, users: Iterable[User]) -> None:
    """Write users.json; the caller holds the folder's lock."""
    write_json(folder / USERS, [dataclasses.asdict(user) for user in sorted(users)])


def stored(root: Path) -> list[Stored]:
    """All state folders of a store, by name; `UserError` for a damaged file in one of them."""
    found = []
    for folder in _states(root):
        try:
            found.append(_stored(folder))
        except UserError:
            if folder.exists():  # else it was forgotten while it was read
                raise
    return found


def _states(root: Path) -> list[Path]:
    return sorted(path for path in _folders(Path(root)) if _HASH.fullmatch(path.name))


def finished_with(entries: Iterable[Stored], key: str, data_hashes: Mapping[str, str]) -> Stored | None:
    """The finished training whose settings alone have the hash `key` and that read data of these hashes, as far as they are known."""
    for entry in entries:
        same_data = all(entry.data_hashes.get(name) == value for name, value in data_hashes.items())
        if entry.finished and same_data and settings_hash(dict(entry.settings), {}) == key:
            return entry
    return None


def _stored(folder: Path) -> Stored:
    return dataclasses.replace(_training(folder), users=read_users(folder))


def _training(folder: Path) -> Stored:
    """A state folder without those who claim it."""
    settings = data = {}
    if (folder / SETTINGS).exists():
        about = read_object(folder / SETTINGS, settings=dict, data=dict)
        settings, data = about["settings"], about["data"]
        if not isinstance(settings.get("training", {}), dict):
            raise UserError(
                f"{folder / SETTINGS}: not the settings of a training: remove the file; a training writes it again"
            )
    finished = _finished(folder)["finished"] if (folder / FINISHED).exists() else None
    return Stored(folder, (), settings, data, finished)


def _finished(folder: Path) -> dict[str, Any]:
    """finished.json of a folder that has one."""
    path = folder / FINISHED
    about = read_object(path, finished=str, epochs=dict, origin=dict)
    epochs_of(path, about)
    return about


# -- going on from fewer epochs


def _tidy(folder: Path, layout: Layout) -> None:
    """Remove what a kill left of a copy, and a note of an end whose training is gone."""
    if not layout.trained_in(folder):
        (folder / FINISHED).unlink(missing_ok=True)
    if (folder / _COPY).exists():
        if not layout.trained_in(folder):  # the checkpoint comes last: what came before it is of no use
            for path in folder.iterdir():
                if path.name not in (LOCK, SETTINGS, USERS, _COPY):
                    path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
        shutil.rmtree(folder / _COPY)


def _go_on_from_shorter(root: Path, folder: Path, request: Request) -> None:
    """Copy the longest finished training of fewer epochs that is else the same, or say why none can be continued."""
    name, first = request.user.name, None
    for epochs, source in _shorter(root, request):
        with folder_lock(source, "training", wait=True):
            reason = _not_continued(source, request) or _copy(source, folder, request)
        if reason is None:
            say(f"{name}: goes on from a copy of the {epochs} epochs in {source}")
            return
        first = first or f"{name}: starts anew, not from the {epochs} epochs in {source}: {reason}"
    if first:
        say(first)


def _shorter(root: Path, request: Request) -> list[tuple[int, Path]]:
    """(epochs, folder) of finished trainings that differ in a smaller number of epochs alone, the longest first.

    Compared by their hash: their settings may lack a key that was added later. Who claims them does not matter, and one
    whose files are damaged is passed over with a word.
    """
    training = request.settings.get("training", {})
    epochs = training.get("epochs")
    if request.schedule is None or epochs is None:
        return []
    found = []
    for folder in _states(root):
        try:
            other = _training(folder)
        except UserError as error:
            say(f"{request.user.name}: passes over {folder}: {error}")
            continue
        fewer = other.settings.get("training", {}).get("epochs", epochs)
        if not other.finished or fewer >= epochs:
            continue
        shorter = {**request.settings, "training": {**training, "epochs": fewer}}
        if state_folder(root, shorter, request.data_hashes).name == other.folder.name:
            found.append((fewer, other.folder))
    return sorted(found, key=lambda entry: -entry[0])


def _not_continued(source: Path, request: Request) -> str | None:
    """Why a finished training of fewer epochs cannot be continued, or None."""
    if request.schedule not in FREE_OF_EPOCHS:
        return f"training.schedule {request.schedule} depends on the number of epochs"
    if request.settings["training"].get("max_updates") is not None:
        return "training.max_updates ends it, not its epochs"
    if not (source / request.layout.checkpoints[0]).exists():
        return f"its {request.layout.checkpoints[0]} is gone"
    epochs = epochs_of(source / FINISHED, _finished(source))
    gone = [e for e in request.selection.best(epochs) if not (source / request.layout.weights.format(e)).exists()]
    if gone:
        return f"the weights of epoch {', '.join(map(str, sorted(gone)))}, one of its best, are gone"
    return None


def _copy(source: Path, folder: Path, request: Request) -> str | None:
    """Copy a training so that its checkpoint, which makes it one, comes last; the reason when that is damaged, else None."""
    layout, copy = request.layout, folder / _COPY
    copy.mkdir()
    checkpoint = layout.checkpoints[0]
    try:
        for pattern in (layout.weights.format("*"), *layout.beside):
            for path in source.glob(pattern):
                shutil.copy2(path, copy / path.name, follow_symlinks=False)
        if layout.relabel:
            epochs = request.settings["training"]["epochs"]
            layout.relabel(source / checkpoint, copy / checkpoint, folder.name, epochs)
        else:
            shutil.copy2(source / checkpoint, copy / checkpoint)
        _on_disk(copy)
        for path in sorted(copy.iterdir(), key=lambda path: path.name == checkpoint):
            os.replace(path, folder / path.name)
    except ValueError as error:
        return str(error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"{folder}: the disk is full, {source} cannot be copied: free some space and run again"
        ) from None
    finally:
        shutil.rmtree(copy)
    return None


def _on_disk(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


# -- forgetting


def forget(root: Path, run: str, arms: Sequence[str] | None = None) -> Forgotten:
    """Drop the claims of a run, or of some of its arms, and remove the trainings that nobody claims then.

    Raises `UserError`, with nothing changed, for a run or an arm that claims nothing and while one of the trainings runs.
    """
    root = Path(root)
    everything = stored(root)
    runs = sorted({user.run for entry in everything for user in entry.users})
    if run not in runs:
        raise UserError(f"{root}: run {run!r} claims no training here: {_known('claims are of', runs)}")
    known = sorted({user.arm for entry in everything for user in entry.users if user.run == run})
    for arm in arms or ():
        if arm not in known:
            raise UserError(
                f"{root}: run {run!r} claims no training of an arm {arm!r}: {_known('its arms are', known)}"
            )

    def meant(user: User) -> bool:
        return user.run == run and (not arms or user.arm in arms)

    dropped, removed, kept = [], [], []
    with contextlib.ExitStack() as locks:
        affected = [entry for entry in everything if any(map(meant, entry.users))]
        for entry in affected:
            locks.enter_context(folder_lock(entry.folder, "training"))
        for entry in affected:
            users = read_users(entry.folder)  # as they stand now that nobody else can change them
            dropped += filter(meant, users)
            others = tuple(user for user in users if not meant(user))
            if others:
                write_users(entry.folder, others)
                kept.append(dataclasses.replace(entry, users=others))
            else:
                hidden = root / f".{entry.folder.name}.forgotten"
                shutil.rmtree(hidden, ignore_errors=True)
                os.rename(entry.folder, hidden)
                removed.append(entry.folder)
    for hidden in root.glob(".*.forgotten"):  # those of an earlier call that was killed too
        shutil.rmtree(hidden)
    return Forgotten(tuple(sorted(dropped)), tuple(removed), tuple(kept))


def _known(what: str, names: Sequence[str]) -> str:
    return f"{what} {', '.join(names)}" if names else "no run claims any"
