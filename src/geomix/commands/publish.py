"""`geomix publish`: check a finished run and copy it, less its weights, to results/published."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.errors import UserError
from geomix.report.page import build_page
from geomix.report.publish import publish_run
from geomix.training.results import WER, Study, studies_in

PUBLISHED = Path("results/published")


def is_published(folder: Path) -> bool:
    """Whether a folder lies in a folder results/published, or is it."""
    parts = Path(folder).resolve().parts
    return any(pair == ("results", "published") for pair in zip(parts, parts[1:], strict=False))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", type=Path, metavar="RUN", help="a run's name, or its folder results/<run>")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: results/published/<run>")
    parser.add_argument("--replace", action="store_true", help="take the place of what is published there")
    parser.add_argument("--allow-dirty", action="store_true", help="take records of uncommitted code, and say so")


def run(arguments: argparse.Namespace) -> None:
    """Publish and say where."""
    folder = arguments.name if arguments.name.is_dir() else Path("results") / arguments.name
    if not folder.is_dir():
        raise UserError(f"{arguments.name}: no such run: name a folder of results/, or give its path")
    if is_published(folder):
        raise UserError(f"{folder}: is published already: name the run that it came from")
    # results/<run>/language, named by itself, keeps its place below the run
    parts = folder.resolve().parts
    below = parts[len(parts) - parts[::-1].index("results") :] if "results" in parts else parts[-1:]
    out = arguments.out or PUBLISHED.joinpath(*below)
    publication = publish_run(folder, out, allow_dirty=arguments.allow_dirty, replace=arguments.replace)
    for remark in publication.remarks:
        print(f"note: {remark}")
    for study in map(Study.read, studies_in(publication.out)):
        # a run of before manifests were published has no references, so no page
        if study.metric != WER or (study.folder / "manifests").is_dir():
            build_page(study.folder, audio=False)
    files = sum(path.is_file() for path in publication.out.rglob("*"))
    print(f"published: {publication.out}, {files} files; `geomix tables {publication.out}` rebuilds its pages")
