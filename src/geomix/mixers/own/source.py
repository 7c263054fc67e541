"""The file of a user's own mixer: found, hashed and checked by its syntax tree, and kept beside what it trained. Nothing is run.

In a resolved configuration the mixer is `{"mixer": "path/to/file.py:Class", "mixer_source": hash, ...arguments}`.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import atomic_path

FILE = "mixer_source.py"
"""Name of the copy beside a state and beside a model."""

HASH = "mixer_source"
"""Key of a mixer that names its source: twelve hex digits."""

KEPT = "mixer_file"
"""Key of a mixer in memory that says from which copy it is loaded."""

GIVEN = ("block", "seed", "dropout")
"""Arguments that a constructor is given if it names them."""

_NOT_ARGUMENTS = ("mixer", HASH, KEPT)


def is_own(mixer: Any) -> bool:
    """Whether a mixer's name is that of a user's file or package."""
    return isinstance(mixer, str) and ":" in mixer


def arguments_in(mixer: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments among the keys of a mixer."""
    return {key: value for key, value in mixer.items() if key not in _NOT_ARGUMENTS}


@dataclass(frozen=True)
class Source:
    """A class in a file.

    name : as the configuration has it; path : the file; cls : name of the class
    package : the package whose modules it may import relatively; "" for a file that is in none
    text : the file's bytes
    """

    name: str
    path: Path
    cls: str
    package: str
    text: bytes

    @property
    def tree(self) -> ast.Module:
        """The file's syntax tree."""
        return _tree(str(self.path), self.text)

    @functools.cached_property
    def hash(self) -> str:
        """Twelve hex digits of the syntax tree without docstrings: comments, quotes and layout are not in it."""
        return _hash(str(self.path), self.text)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """`UserError` for arguments that the constructor does not take, as far as the file tells."""
        taken = _constructor(self.tree, self.cls)
        if taken is not None:
            taken.check(self.name, arguments)


@dataclass(frozen=True)
class Constructor:
    """What a constructor takes behind the width: argument -> whether it must be given; `open`: any others too."""

    width: str | None
    arguments: Mapping[str, bool]
    open: bool

    def check(self, name: str, given: Mapping[str, Any]) -> None:
        """`UserError` unless `Class(width, **given)`, with what it takes of `GIVEN`, can be called."""
        if self.width is None:
            raise UserError(f"{name}: its constructor takes no width: write def __init__(self, width, ...)")
        own = [argument for argument in self.arguments if argument not in GIVEN]
        for argument in given:
            if argument in (*GIVEN, self.width):
                raise UserError(f"{name}: {argument!r} is given to its constructor by geomix: leave the key out")
            if argument not in own and not self.open:
                raise UserError(
                    f"{name}: its constructor takes no {argument!r}: {_suggest(argument, own, 'nothing but the width')}"
                )
        for argument in own:
            if self.arguments[argument] and argument not in given:
                raise UserError(f"{name}: its constructor needs {argument!r}: give it as a key of the arm")


def find(mixer: Mapping[str, Any]) -> Source:
    """The source of a mixer, from the copy that it names or from where the user has it; `UserError` says what is wrong.

    Paths start at the working directory, the project's root; variables and ~ are expanded. A package is found without importing it.
    """
    name = mixer["mixer"]
    place, _, cls = name.rpartition(":")
    if not place or not cls.isidentifier():
        raise UserError(f"{name!r} is no mixer: write path/to/file.py:Class or package.module:Class")
    is_file = place.endswith(".py") or "/" in place
    package = "" if is_file else place.rpartition(".")[0]
    if KEPT in mixer:
        path = Path(mixer[KEPT])
        if not path.is_file():
            raise UserError(f"{path}: no such file, from which the mixer {cls} is loaded: make the model again")
    else:
        path = _file(place) if is_file else _module(place, name)
    source = Source(name, path, cls, package, path.read_bytes())
    classes = list(_classes(source.tree))
    if cls not in classes:
        raise UserError(f"{path} has no class {cls!r}: {_suggest(cls, classes, 'it has none')}")
    _check_imports(source)
    if mixer.get(HASH) not in (None, source.hash) and KEPT in mixer:
        raise UserError(f"{path}: was edited since the training with it: make the model again")
    return source


def keep(mixer: Mapping[str, Any] | None, folder: Path) -> None:
    """Copy a mixer's source into `folder`, whole or not at all, if it is a user's own and not there."""
    if mixer and is_own(mixer.get("mixer")) and not (folder / FILE).exists():
        write(find(mixer).text, folder)


def write(text: bytes, folder: Path) -> None:
    """Write a mixer's source into `folder`, whole or not at all."""
    with atomic_path(folder / FILE) as temporary:
        temporary.write_bytes(text)


def kept(model: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of a model whose mixer, if it is a user's own, is loaded from the copy in `folder`."""
    mixer = model.get("mixer")
    if not isinstance(mixer, Mapping) or not is_own(mixer.get("mixer")):
        return dict(model)
    return {**model, "mixer": {**mixer, KEPT: str(Path(folder) / FILE)}}


# -- where it is


def _file(place: str) -> Path:
    path = Path(os.path.expandvars(os.path.expanduser(place)))
    if path.is_file():
        return path
    beside = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, beside, n=1)
    hint = f"did you mean {str(path.parent / close[0])!r}?" if close else f"paths start at {Path.cwd()}"
    raise UserError(f"{path}: no such file: {hint}")


def _module(place: str, name: str) -> Path:
    """File of a module; its packages are not imported, as `importlib.util.find_spec` would do."""
    parts, where, spec = place.split("."), None, None
    for number in range(len(parts)):
        full = ".".join(parts[: number + 1])
        try:
            spec = (
                importlib.util.find_spec(full)
                if where is None
                else importlib.machinery.PathFinder.find_spec(full, where)
            )
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise UserError(f"{name}: there is no module {full}: install it, or name a file, path/to/file.py:Class")
        where = spec.submodule_search_locations
    if not spec.origin or not spec.origin.endswith(".py"):
        raise UserError(f"{name}: {place} has no Python source: name the module that holds the class")
    return Path(spec.origin)


def _check_imports(source: Source) -> None:
    """Refuse imports of other files of the user's: one file is hashed and copied beside the model."""
    cure = "one file goes with the model: put it there, or name an installed package.module:Class"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level and not source.package:
            raise UserError(f"{source.path}, line {node.lineno}: imports relatively: {cure}")
        if isinstance(node, ast.Import | ast.ImportFrom) and not source.package:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for top in (name.split(".")[0] for name in names):
                beside = source.path.parent / top
                if top != "geomix" and (beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file()):
                    raise UserError(f"{source.path}, line {node.lineno}: imports {top}, which lies beside it: {cure}")


# -- what it says


@functools.lru_cache(maxsize=64)
def _tree(path: str, text: bytes) -> ast.Module:
    try:
        return ast.parse(text, path)
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{path}: no Python source: {error}") from None


@functools.lru_cache(maxsize=64)
def _hash(path: str, text: bytes) -> str:
    return hashlib.sha256(_written(_tree(path, text)).encode()).hexdigest()[:12]


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _written(value: Any) -> str:
    """A syntax tree as text, in which later versions of Python write what this one does: an absent part is left out."""
    if isinstance(value, list):
        return f"[{' '.join(map(_written, value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    parts = []
    for field, inner in ast.iter_fields(value):
        if field == "body" and isinstance(value, _DOCUMENTED):
            inner = _without_docstring(inner)
        if inner not in (None, []) and field not in ("kind", "type_comment"):
            parts.append(f"{field}={_written(inner)}")
    return f"{type(value).__name__}({' '.join(parts)})"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0].value if body and isinstance(body[0], ast.Expr) else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return body[1:] or [ast.Pass()]
    return body


def _classes(tree: ast.Module) -> Iterator[str]:
    return (node.name for node in _top_level(tree.body) if isinstance(node, ast.ClassDef))


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for branch in (
            ("body", "orelse", "finalbody", "handlers") if isinstance(node, ast.If | ast.Try | ast.With) else ()
        ):
            for inner in getattr(node, branch, ()):
                yield from _top_level(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _constructor(tree: ast.Module, cls: str) -> Constructor | None:
    """What the constructor of a class takes; None where the file does not tell."""
    classes = {node.name: node for node in _top_level(tree.body) if isinstance(node, ast.ClassDef)}
    seen: set[str] = set()
    while (node := classes.get(cls)) is not None and cls not in seen:
        if node.decorator_list:  # which may make a constructor
            return None
        seen.add(cls)
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if made:
            return _taken(made[-1].args)
        if len(node.bases) != 1 or not isinstance(node.bases[0], ast.Name):
            return None
        cls = node.bases[0].id
    return None


def _taken(arguments: ast.arguments) -> Constructor:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    required = len(positional) - len(arguments.defaults)
    taken = {name: number < required for number, name in enumerate(positional)}
    taken |= {
        each.arg: default is None for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
    own, rest = positional[:1], positional[1:]
    width = rest[0] if rest else "width" if arguments.vararg else None
    return Constructor(
        width, {n: must for n, must in taken.items() if n not in (*own, width)}, arguments.kwarg is not None
    )


def _suggest(name: str, known: list[str], none: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}" if known else none
