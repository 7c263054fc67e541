"""Building the page of a study: what it shows is collected here, and laid out by the template and the scripts in assets/."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import replacing_folder
from geomix.report.names import PHASES
from geomix.report.page.markdown import Document, read_document
from geomix.report.page.overview import study_data
from geomix.report.page.recordings import copy_recordings
from geomix.report.page.utterances import utterance_data
from geomix.training.results import WER, Study, studies_in

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("model.js", "plots.js", "overview.js", "compare.js", "utterances.js", "main.js")
OF_UTTERANCES = ("compare.js", "utterances.js")
LIBRARY = ("js/tabulator.min.js", "css/tabulator_simple.min.css")  # Tabulator, as the package js_lib_tabulator ships it
GENERATED = (
    "demo",
    "smoke",
)  # kinds of corpora that are made here, and small: their recordings are copied into the page


@dataclass(frozen=True)
class Tab:
    """A part of the page: its name in the address, its title, and what it holds from the start (HTML; `lead` before all else)."""

    name: str
    title: str
    html: str = ""
    lead: str = ""


@dataclass
class Page:
    """What is written: tabs, the data of the scripts, and files beside them (name -> where it is copied from)."""

    title: str
    tabs: list[Tab]
    data: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)


def pages_in(folder: str | os.PathLike) -> list[Path]:
    """The folders below a run that a page can be made of: its study, its language study; an algebra run itself. `UserError` if none."""
    folder = Path(folder)
    found = studies_in(folder) or ([folder] if _phases(folder) else [])
    if not found:
        raise UserError(f"{folder}: no study.json here and no page of the algebra study: name the folder of a run")
    return found


def build_page(
    folder: str | os.PathLike,
    out: str | os.PathLike | None = None,
    *,
    audio: bool | None = None,
    partial: bool = False,
) -> Path:
    """Write the page of a study into the folder `out` (`<folder>/page`) and return its index.html.

    It is made from what lies in `folder`: study.json, tables, comparisons.json, records, logs, diagnostics, scores, hypotheses and
    manifests, or the phases' pages of an algebra run. Without audio the same files give the same bytes.

    audio : copy the recordings into the page and draw their spectrograms; by default those of generated corpora alone
    partial : take what is finished; the tables are those in `<folder>/partial`, and so is the page

    Raises UserError that names what is missing or does not belong together.
    """
    folder = Path(folder)
    place = folder / "partial" if partial else folder
    out = Path(out) if out is not None else place / "page"
    if (folder / "study.json").is_file():
        page = _study_page(Study.read(folder), place, out, partial)
    else:
        page = _algebra_page(folder)
    if out.exists() and not (out.is_dir() and ((out / "index.html").is_file() or not any(out.iterdir()))):
        raise UserError(f"{out}: is there and is no results page: name another folder with --out")
    with replacing_folder(out) as building:
        if "utterances" in page.data and (audio if audio is not None else page.data["kind"] in GENERATED):
            page.data["audio"] = copy_recordings(Study.read(folder), building)
        _write(page, building)
    return out / "index.html"


def _study_page(study: Study, place: Path, out: Path, partial: bool) -> Page:
    document = read_document(place / "tables.md", without=("Figures",))
    data = study_data(study, place, partial=partial)
    lead, heading, rest = document.html.partition("<h2>")  # the gate and the hypothesis come before the first table
    tabs = [Tab("overview", "Overview", heading + rest, lead)]
    if study.metric == WER:
        data |= utterance_data(study, out, partial=partial)
        if data["trainings_scored"]:
            tabs += [Tab("compare", "Arms side by side"), Tab("utterances", "Utterances")]
    if any(training["blocks"] for training in data["trainings"]):
        tabs.append(Tab("mixers", "Mixers"))
    run, _, corpus = document.title.partition(": ")
    return Page(run if run == corpus else document.title, tabs, data)


def _phases(folder: Path) -> list[str]:
    return [name for name in PHASES if (folder / f"{name}.md").is_file()]


def _algebra_page(folder: Path) -> Page:
    """A tab a phase, each the phase's own page with its figures."""
    pages: dict[str, Document] = {name: read_document(folder / f"{name}.md") for name in _phases(folder)}
    tabs = [Tab(name, name.capitalize(), page.html) for name, page in pages.items()]
    figures = {image: folder / image for page in pages.values() for image in page.images}
    return Page(f"Algebra: {folder.name}", tabs, {"kind": "algebra", "trainings": []}, figures)


def _write(page: Page, folder: Path) -> None:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    scripts = [name for name in SCRIPTS if "utterances" in page.data or name not in OF_UTTERANCES]
    library = [Path(name).name for name in LIBRARY if "utterances" in page.data]
    html = environment.get_template("index.html").render(
        title=page.title,
        tabs=page.tabs,
        scripts=[*(name for name in library if name.endswith(".js")), "data.js", *scripts],
        styles=[*(name for name in library if name.endswith(".css")), "page.css"],
    )
    (folder / "index.html").write_text(html, encoding="utf-8")
    (folder / "data.js").write_text(script_of(page.data), encoding="ascii")
    for name in (*scripts, "page.css"):
        shutil.copyfile(ASSETS / name, folder / name)
    for name in library:
        shutil.copyfile(_library() / next(part for part in LIBRARY if part.endswith(name)), folder / name)
    for name, source in page.files.items():
        if not source.is_file():
            raise UserError(f"{source}: no such file, and the page shows it: run the report step again")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)


def script_of(data: Mapping[str, Any]) -> str:
    """data.js: a page that is opened from a file may not fetch, so its data are a script. ASCII; `<` is escaped too."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"window.geomix={text};\n"


def _library() -> Path:
    """The folder with Tabulator's files."""
    found = importlib.util.find_spec("js_lib_tabulator")
    if found is None or not found.submodule_search_locations:
        raise UserError(
            "the page's table needs the package django-js-lib-tabulator, which is not installed: make env, or "
            "pip install django-js-lib-tabulator==6.3.1.1"
        )
    return Path(next(iter(found.submodule_search_locations))) / "static" / "tabulator"
