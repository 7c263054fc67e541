"""The page's files: what they hold of a run, and that the published ones are what geomix makes."""

import json
import shutil
from pathlib import Path

import pytest

from geomix.cli import main
from geomix.errors import UserError
from geomix.report.page import build_page, pages_in
from geomix.speech.scoring import read_score, read_text
from geomix.studies.comparison import compare_study
from geomix.studies.speech import SPEECH
from tests.page.conftest import HTML, make_tables

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published"
PAGES = {"an4": "an4", "wikitext2": "wikitext2/language", "algebra": "algebra"}


def data_of(page):
    """What data.js gives the page's scripts."""
    text = (page.parent / "data.js").read_text(encoding="ascii")
    return json.loads(text.removeprefix("window.geomix=").removesuffix(";\n"))


def heard(reference, edits):
    """The hypothesis that a line of `edits` makes of a reference."""
    words, inserted = list(reference.split()), {}
    for edit in edits.split():
        place, _, word = edit[1:].partition(":")
        if edit[0] == "I":
            inserted.setdefault(int(place), []).append(word)
        else:
            words[int(place)] = word if edit[0] == "S" else None
    said = [[*inserted.get(at, []), word] for at, word in enumerate([*words, None])]
    return " ".join(word for part in said for word in part if word is not None)


@pytest.mark.parametrize("run", ["an4"])
def test_a_published_page_is_rebuilt_byte_for_byte_and_small(run, tmp_path):
    folder = PUBLISHED / PAGES[run]
    index = build_page(folder, tmp_path / "page")
    names = lambda place: sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert names(index.parent) == names(folder / "page")
    for name in names(index.parent):
        assert (index.parent / name).read_bytes() == (folder / "page" / name).read_bytes(), f"run geomix page {folder}"
    assert sum(path.stat().st_size for path in index.parent.rglob("*")) < 2_000_000


def test_every_hypothesis_comes_back_from_its_differences():
    folder = PUBLISHED / "an4"
    data = data_of(folder / "page" / "index.html")
    ids, references = (data["utterances"][name].split("\n") for name in ("id", "reference"))
    assert len(data["edits"]) == 16
    for key, text in data["edits"].items():
        track, arm, seed = key.split("/")
        place = folder / track / arm / f"seed{seed}"
        hypotheses, score = read_text(place / "hyp/test/text"), read_score(place / "score/test.tsv")
        lines = text.split("\n")
        assert [heard(r, e) for r, e in zip(references, lines, strict=True)] == [hypotheses[id] for id in ids]
        kinds = "".join(edit[0] for line in lines for edit in line.split())
        counts = (score.words.substitutions, score.words.insertions, score.words.deletions)
        assert tuple(map(kinds.count, "SID")) == counts


def test_nothing_of_a_transcript_stands_unescaped_in_the_files(page):
    for path in page.parent.glob("*"):
        if path.name in ("index.html", "data.js"):
            text = path.read_text(encoding="utf-8")
            assert not any(word in text for word in HTML[:2]), path
    assert HTML[0] in data_of(page)["utterances"]["reference"]
    html = page.read_text(encoding="utf-8")
    assert "http://" not in html and "https://" not in html


@pytest.mark.parametrize("run", ["wikitext2", "algebra"])
def test_pages_of_language_and_algebra_runs(run, tmp_path, capsys):
    main(["page", str(PUBLISHED / run), "--out", str(tmp_path / "page")])
    html = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    if run == "algebra":
        assert all(f'id="tab-{phase}"' in html for phase in ("representation", "architectures", "interpretability"))
        assert (tmp_path / "page" / "figures" / "representation.png").is_file()
    else:
        data = data_of(tmp_path / "page" / "index.html")
        assert 'id="tab-mixers"' in html and 'id="tab-utterances"' not in html
        ratios = {(v["a"], v["b"], v["where"]): v["verdict"] for v in data["verdicts"]}
        assert ratios["grassmann", "transformer", "on test"] == "transformer better"
        assert len(data["trainings"]) == 12 and all(t["curves"]["loss"] for t in data["trainings"])
    assert not (tmp_path / "page" / "tabulator.min.js").exists()
    assert "open it in a browser" in capsys.readouterr().out


def test_what_does_not_belong_together_is_a_sentence(made_up_run, tmp_path):
    run = tmp_path / "results" / "made_up"
    shutil.copytree(made_up_run, run)
    shutil.copytree(made_up_run.parents[1] / "data", tmp_path / "data")
    text = run / "own/attention/seed0/hyp/test/text"
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    text.write_text("".join([lines[0].rstrip() + " MORE\n", *lines[1:]]), encoding="utf-8")
    with pytest.raises(UserError, match="score this set again"):
        build_page(run)
    assert (
        sorted(path.name for path in run.iterdir() if path.name.startswith(".page")) == []
    )  # nothing half made is left
    (run / "own/attention/seed0/score/test.tsv").unlink()
    with pytest.raises(UserError, match="test.tsv: no such file, and the page shows it"):
        build_page(run)
    shutil.rmtree(tmp_path / "data")
    (run / "partial").mkdir()
    for name in ("tables.csv", "tables.md"):
        shutil.copy(run / name, run / "partial")
    with pytest.raises(UserError, match="dev.tsv: no such file, and the page takes the references"):
        build_page(run, partial=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    with pytest.raises(UserError, match="is there and is no results page"):
        build_page(made_up_run, tmp_path / "full")
    with pytest.raises(UserError, match="no study.json here and no page of the algebra study"):
        pages_in(tmp_path)


def test_a_partial_page_shows_the_curves_of_what_runs(made_up_run, tmp_path):
    run = tmp_path / "results" / "made_up"
    shutil.copytree(made_up_run, run)
    shutil.copytree(made_up_run.parents[1] / "data", tmp_path / "data")
    place, state = run / "own/no_mixer/seed1", tmp_path / "state" / ("0" * 12)
    state.mkdir(parents=True)
    users = [{"run": "made_up", "track": "own", "arm": "no_mixer", "seed": 1}]
    (state / "users.json").write_text(json.dumps(users), encoding="utf-8")
    lines = (place / "log.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (state / "log.jsonl").write_text("".join(lines[:6]) + lines[6][:20], encoding="utf-8")  # a line is being written
    shutil.rmtree(place)
    make_tables(run, partial=compare_study(SPEECH, run, partial=True))
    data = data_of(build_page(run, partial=True))
    assert len(data["trainings_scored"]) == 7 and len(data["trainings"]) == 8
    (running,) = [t for t in data["trainings"] if t["running"]]
    assert running["key"] == "own/no_mixer/1" and [x for x, _ in running["curves"]["dev_cer"]] == [1, 2, 3]
