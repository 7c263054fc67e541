"""Putting a finished run among the published ones: what is checked, what is copied, what is left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from geomix.errors import UserError
from geomix.files import read_object, replacing_folder, write_text
from geomix.report.build import build_report
from geomix.report.names import ANATOMY, DIAL, FORMS, figure_files
from geomix.speech.manifest import read_lines, read_manifest
from geomix.speech.scoring import read_score
from geomix.training.results import JUDGED, LANGUAGE, WER, Study, studies_in

# what is copied of a training's folder: all but weights and features
KINDS = (".json", ".jsonl", ".tsv", ".csv", ".md", ".yaml", ".txt", ".svg", ".png")
NAMES = ("text", "tokenizer.model", "mixer_source.py")
# what is copied of the run's own folder, where it is there
PAGES = ("tables.md", "tables.csv")
SUMMARIES = (
    "study.json",
    "corpus.json",
    "comparisons.json",
    JUDGED,
    "parity.json",
    "anchor.json",
    "agreement.json",
    *PAGES,
    f"{ANATOMY}.md",
    *(f"{DIAL}.{form}" for form in FORMS),
)


@dataclass
class Publication:
    """Where a run was published, how many files it has there, and what is to be said of it."""

    out: Path
    files: int = 0
    remarks: list[str] = field(default_factory=list)


def differing(part: Path) -> tuple[list[str], str]:
    """Names of the tables and figures in `part` that are not, byte for byte, what its scores and records give; and their text."""
    with tempfile.TemporaryDirectory() as temporary:
        report = build_report(part, temporary)
        names = [*PAGES, *(f"figures/{name}" for name in figure_files(report.study.settings))]
        return [n for n in names if _content(part / n) != _content(Path(temporary) / n)], report.text()


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def publish_run(
    folder: str | os.PathLike, out: str | os.PathLike, *, allow_dirty: bool = False, replace: bool = False
) -> Publication:
    """Copy a finished run, results/<run>, to `out`: tables, figures, scores, records, hypotheses, logs, manifests; no weights.

    Each training of a study must have its record, of a clean working tree, and its scores and hypotheses; comparisons
    and tables must be those of the scores as they are: what is not so is a `UserError` that names it, and nothing is
    written. With `allow_dirty` a record of uncommitted code is taken, and a remark says so. A study of the run without
    final tables is left out with a remark. `out` appears whole or not at all; one that is there is refused without
    `replace`, which keeps in it the study that this run does not publish.
    """
    folder, out = Path(folder), Path(out)
    parts = studies_in(folder)
    if not parts:
        raise UserError(
            f"{folder}: no study.json here or in {LANGUAGE}/, so no speech or language study to check: name another run, "
            "or copy the pages of an algebra study or a benchmark by hand"
        )
    if out.exists() and not replace:
        raise UserError(f"{out}: is there already: add --replace to publish in its place, or name another with --out")
    if out.exists() and not studies_in(out) and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: holds no published run that could be replaced: name another place with --out")
    publication, published = Publication(out), set()
    with replacing_folder(out) as building:
        for part in parts:
            place = Path(os.path.relpath(part, folder))
            if not (part / "tables.md").is_file():
                publication.remarks.append(f"{part} has no tables.md yet: that study is left out")
                continue
            published.add(place)
            _publish_part(part, building / place, publication, allow_dirty)
        if not published:
            raise UserError(f"{folder}: no study of it has final tables (tables.md): run it to its end first")
        _keep_other_part(out, building, published)
        publication.files = sum(path.is_file() for path in building.rglob("*"))
    return publication


def _keep_other_part(out: Path, building: Path, published: set[Path]) -> None:
    """Carry over the study that lies in `out` and is not published anew: the language study, or the run's own."""
    if Path(LANGUAGE) not in published and (out / LANGUAGE).is_dir():
        shutil.copytree(out / LANGUAGE, building / LANGUAGE)
    if Path(".") not in published and (out / "study.json").is_file():
        keep_out = lambda place, names: [LANGUAGE] if Path(place) == out else []
        shutil.copytree(out, building, ignore=keep_out, dirs_exist_ok=True)


def _publish_part(part: Path, out: Path, publication: Publication, allow_dirty: bool) -> None:
    """Check one study and copy it to `out`."""
    study = Study.read(part)
    speech, trainings = study.metric == WER, _trainings(study)
    dirty = [place for place in trainings if read_object(place / "record.json").get("dirty") is not False]
    if dirty and not allow_dirty:
        raise UserError(
            f"{dirty[0] / 'record.json'}: trained from a working tree that is not known to be clean (dirty is not false; "
            f"{len(dirty)} of {len(trainings)} trainings): commit and train again, or add --allow-dirty"
        )
    if dirty:
        publication.remarks.append(
            f"{len(dirty)} of {len(trainings)} trainings of {part} ran uncommitted code: {', '.join(map(str, dirty))}"
        )
    if stale := [name for name in differing(part)[0] if not name.startswith("figures/")]:
        raise UserError(f"{part / stale[0]}: is not what its scores and records give: run the report step again")
    copy = _copier(part, out)
    for name in (*SUMMARIES, *(f"figures/{name}" for name in figure_files(study.settings))):
        if (part / name).is_file() or name.startswith("figures/"):
            copy(part / name)
    references = sorted(part.glob("granite/*/seed0")) + sorted(part.glob("granite/tables.*"))
    sets = set(study.sets) if speech else set()
    for place in (*trainings, *(references if speech else ())):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if (
                path.is_file()
                and (path.suffix in KINDS or path.name in NAMES)
                and not _of_another_set(path, place, sets)
            ):
                copy(path)
    if speech:
        _publish_manifests(study, out / "manifests", publication)


def _of_another_set(path: Path, place: Path, sets: set[str]) -> bool:
    """Whether a hypotheses or score file is of a set that the study no longer has."""
    parts = path.relative_to(place).parts
    kinds = [number for number, part in enumerate(parts[:-1]) if part in ("hyp", "score", "espnet_argmax")]
    return any(
        parts[number + 1].split(".")[0] not in sets and Path(parts[number + 1]).stem not in sets for number in kinds
    )


def _copier(part: Path, out: Path) -> Callable[[Path], None]:
    def copy(path: Path) -> None:
        target = out / path.relative_to(part)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, target)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file, and the page shows it: run the report step again") from None

    return copy


def _trainings(study: Study) -> list[Path]:
    """Folders of the study's trainings and of its gate's anchors; each must have what a published run needs."""
    wanted = {trained.folder: study.sets for trained in study.trainings}
    anchors = [study.gate] if study.gate else []
    if anchors and study.gate.get("fallback") and not read_object(study.folder / "parity.json", "passed")["passed"]:
        anchors.append(study.gate["fallback"])
    for anchor in anchors:
        sets = [target["set"] for target in anchor.get("targets", ())]
        for seed in anchor["seeds"]:
            wanted.setdefault(study.trained(anchor.get("track", ""), anchor["arm"], seed).folder, sets)
    for place, sets in wanted.items():
        names = ["record.json", "log.jsonl", "diagnostics.json"]
        if study.metric == WER:
            scored = [f"score/{name}.{form}" for name in sets for form in ("json", "tsv")]
            names = ["record.json", *scored, *(f"hyp/{name}/text" for name in sets)]
        _there([place / name for name in names])
    return list(wanted)


def _there(paths: list[Path]) -> None:
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file, and a published run needs it: run the step that makes it")


def _publish_manifests(study: Study, out: Path, publication: Publication) -> None:
    """Write the manifests of the evaluation sets, their recordings named relative to $GEOMIX_DATA or the corpus folder."""
    manifests = study.settings.get("manifests")
    if not manifests:
        publication.remarks.append(
            f"{study.folder / 'study.json'} does not say where the evaluation manifests lie: they are left out"
        )
        return
    for name in study.sets:
        if name not in manifests:
            raise UserError(
                f"{study.folder / 'study.json'}: names no manifest of {name}: run the step that makes it again"
            )
        # as the workflow sees it: relative to the folder that holds results/
        path = Path(manifests[name])
        path = path if path.is_file() else study.folder.resolve().parents[1] / path
        _there([path])
        track = study.tracks[0]
        score = read_score(study.trained(track, study.arms[0], study.seeds(track)[0]).folder / "score" / f"{name}.tsv")
        utterances = {u.id: u for u in read_manifest(path)}
        if {u.id: u.words.reference for u in score.utterances} != {
            id: len(utterance.text.split()) for id, utterance in utterances.items()
        }:
            raise UserError(f"{path}: is not the reference that {name} was scored against: run the score step again")
        lines = read_lines(path, "run the preparation of its corpus first")
        rows = [line.split("\t") for line in lines[1:]]
        corpus = Path(os.path.commonpath([os.path.dirname(utterance.path) for utterance in utterances.values()]))
        for row in rows:
            row[2] = _portable(Path(utterances[row[0]].path), corpus)
        write_text(out / f"{name}.tsv", "\n".join([lines[0], *("\t".join(row) for row in rows)]) + "\n")


def _portable(recording: Path, corpus: Path) -> str:
    """A recording's path without what is one machine's: below $GEOMIX_DATA, or within the folder that holds the set's recordings."""
    if data := os.environ.get("GEOMIX_DATA"):
        for root in (Path(data).absolute(), Path(data).resolve()):
            plain = Path(os.path.normpath(root))
            if recording.is_relative_to(plain):
                return str(Path("$GEOMIX_DATA") / recording.relative_to(plain))
    return str(recording.relative_to(corpus))
