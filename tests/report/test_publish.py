"""Publishing a run and rebuilding what is published."""

import shutil
from pathlib import Path

import pytest

from geomix.cli import main
from geomix.errors import UserError
from geomix.files import read_json, write_json, write_text
from geomix.report import build_report
from geomix.report.publish import publish_run
from geomix.speech.manifest import Utterance, read_manifest, write_manifest
from geomix.speech.scoring import read_reference, read_text, score_texts
from tests.conftest import ROOT
from tests.report.made_up import make_run, references, write_comparisons
from tests.report.test_language import write_study
from tests.report.test_speech import files


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project's root with a finished run, its manifests and its recordings' places."""
    root = tmp_path_factory.mktemp("project")
    run = root / "results/made_up"
    manifests = {name: f"data/words/manifest/{name}.tsv" for name in ("dev", "test")}
    for name, path in manifests.items():
        rows = [
            Utterance(id, speaker, f"{root}/elsewhere/words/{id}.wav", 16000, 1.0, " ".join(words))
            for id, speaker, words, _ in references(name)
        ]
        write_manifest(root / path, rows)
    make_run(run, arms=("attention", "grassmann"), seeds=(0,), manifests=manifests)
    for path in (run / "own/attention/seed0/model.safetensors", run / "own/attention/seed0/features.f32"):
        write_text(path, "heavy")
    build_report(run)
    return root


@pytest.fixture
def root(made, tmp_path, monkeypatch):
    """A copy to work in. Its recordings lie where they lay."""
    root = shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(root)
    monkeypatch.setenv("GEOMIX_DATA", str(made / "elsewhere"))
    return root


def test_a_published_run_stands_by_itself(root, capsys):
    main(["publish", "made_up"])
    out = root / "results/published/made_up"
    assert f"published: results/published/made_up, {len(files(out))} files" in capsys.readouterr().out
    run, published = files(root / "results/made_up"), files(out)
    manifests = {path for path in published if path.parts[0] == "manifests"}
    heavy = {path for path in run if path.suffix in (".safetensors", ".f32")}
    page = {path for path in published if path.parts[0] == "page"}
    assert len(manifests) == 2 and len(heavy) == 2 and Path("page/index.html") in page
    assert {path: published[path] for path in published.keys() - manifests - page} == {
        path: run[path] for path in run.keys() - heavy
    }
    # whoever has it can score it again, and knows which recordings these are
    reference, speakers = read_reference(out / "manifests/test.tsv", None)
    training = out / "own/grassmann/seed0"
    score = score_texts(reference, read_text(training / "hyp/test/text"), speakers, set="test")
    assert score.to_dict() == read_json(training / "score/test.json")
    assert "\t$GEOMIX_DATA/words/s00-0.wav\t" in (out / "manifests/test.tsv").read_text()
    assert str(root.parent) not in (out / "manifests/test.tsv").read_text()

    before = files(out)
    main(["tables", "results/published/made_up"])
    assert capsys.readouterr().out.endswith("results/published/made_up: the same as published\n")
    (out / "tables.csv").write_text("edited\n")
    with pytest.raises(SystemExit):
        main(["tables", "results/published/made_up"])
    assert "not what its scores and records give: results/published/made_up/tables.csv" in capsys.readouterr().err
    assert (out / "tables.csv").read_text() == "edited\n"
    main(["tables", "results/published/made_up", "--out", "rebuilt"])
    assert (root / "rebuilt/tables.csv").read_bytes() == before[(out / "tables.csv").relative_to(out)]


def test_recordings_are_named_within_the_folder_that_holds_them(root, made, monkeypatch):
    monkeypatch.delenv("GEOMIX_DATA")
    publish_run(root / "results/made_up", root / "published")
    text = (root / "published/manifests/test.tsv").read_text()
    assert "\ts00-0.wav\t" in text and str(made) not in text


def test_nothing_but_a_published_run_is_replaced(root):
    out = root / "thesis"
    (out / "sub").mkdir(parents=True)
    (out / "sub" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="holds no published run that could be replaced"):
        publish_run(root / "results/made_up", out, replace=True)
    assert (out / "sub" / "thesis.txt").read_text() == "years of work"


def test_what_is_left_of_another_set_is_not_published(root):
    place = root / "results/made_up/own/grassmann/seed0"
    for name in ("hyp/gone/text", "score/gone.json", "score/gone.tsv"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("of a set that the study no longer has")
    publish_run(root / "results/made_up", root / "published")
    found = {path.name for path in (root / "published/own/grassmann/seed0").rglob("*")}
    assert "test.json" in found and "gone.json" not in found and "gone" not in found


def test_a_record_beside_another_trainings_model_is_refused(root):
    place = root / "results/made_up/own/grassmann/seed0"
    write_json(place / "averaging.json", {"training": "0123456789ab", "note": None})
    write_json(place / "record.json", read_json(place / "record.json") | {"settings_hash": "ba9876543210"})
    with pytest.raises(UserError, match="its model is of training 0123456789ab, the record beside it of ba9876543210"):
        publish_run(root / "results/made_up", root / "published")


@pytest.mark.parametrize(
    "absent",
    ["own/grassmann/seed0/record.json", "own/attention/seed0/score/dev.tsv", "own/attention/seed0/hyp/dev/text"],
)
def test_a_training_that_lacks_a_file_is_named(root, absent):
    (root / "results/made_up" / absent).unlink()
    with pytest.raises(UserError, match=f"made_up/{absent}: no such file, and a published run needs it"):
        publish_run("results/made_up", "published")
    assert not (root / "published").exists() and not list(root.glob(".published*"))


def test_what_is_not_current_is_refused(root):
    run = root / "results/made_up"
    write_text(run / "tables.csv", "of before\n")
    with pytest.raises(UserError, match=r"made_up/tables.csv: is not what its scores and records give"):
        publish_run(run, root / "published")
    build_report(run)
    entries = read_json(run / "comparisons.json")
    write_json(run / "comparisons.json", [{**entry, "difference": entry["difference"] + 1} for entry in entries])
    with pytest.raises(UserError, match=r"comparisons.json: has .* run the compare step again"):
        publish_run(run, root / "published")
    write_comparisons(run)
    manifest = root / "data/words/manifest/test.tsv"
    write_manifest(manifest, read_manifest(manifest)[1:])
    with pytest.raises(UserError, match="test.tsv: is not the reference that test was scored against"):
        publish_run(run, root / "published")
    assert not (root / "published").exists()


def test_uncommitted_code_is_refused_or_said(root):
    path = root / "results/made_up/own/grassmann/seed0/record.json"
    write_json(path, read_json(path) | {"dirty": True})
    build_report("results/made_up")
    with pytest.raises(UserError, match=r"grassmann/seed0/record.json: trained from a working tree .*1 of 2 trainings"):
        publish_run("results/made_up", "published")
    publication = publish_run("results/made_up", "published", allow_dirty=True)
    assert "ran uncommitted code: results/made_up/own/grassmann/seed0" in publication.remarks[0]


def test_both_studies_of_a_run_and_one_after_the_other(root):
    language = root / "results/made_up/language"
    write_study(language)
    publication = publish_run("results/made_up", "published")
    assert publication.remarks == ["results/made_up/language has no tables.md yet: that study is left out"]
    with pytest.raises(UserError, match="published: is there already: add --replace"):
        publish_run("results/made_up", "published")
    build_report(language)
    speech = files(root / "published")
    publish_run("results/made_up", "published", replace=True)
    both = files(root / "published")
    assert both.keys() - speech.keys() == {path for path in both if path.parts[0] == "language"}
    (language / "tables.md").unlink()
    publish_run("results/made_up", "published", replace=True)
    assert files(root / "published") == both  # the language study stays as it was published


def test_a_folder_without_a_study_is_not_published(root, capsys):
    (root / "results/bench").mkdir()
    for run, sentence in (("bench", "no study.json here"), ("none", "no such run")):
        with pytest.raises(SystemExit):
            main(["publish", run])
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("run", ["an4", "wikitext2"])
def test_our_published_pages_are_what_their_records_give(run, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    main(["tables", f"results/published/{run}"])
    assert capsys.readouterr().out.endswith(f"results/published/{run}: the same as published\n")
