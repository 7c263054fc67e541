"""Two tracks side by side in the tables: differences from the pooled counts, a second set of hypotheses, missed checks."""

import shutil

import pytest

from geomix.files import read_json, write_json, write_text
from geomix.report import agreement, build_report
from geomix.training.results import Study
from tests.report.made_up import make_run, make_study, write_comparisons


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("geomix.report.build.draw_figures", lambda results, folder: [])
    folder = tmp_path / "run"
    make_run(folder, arms=("attention", "grassmann"), tracks=("own", "espnet"), seeds=(0, 1))
    return folder


def rate(path):
    return read_json(path)["words"]["rate"]


def test_the_difference_between_tracks_is_that_of_the_scores(run):
    lines = agreement.tables(Study.read(run)).arms.cells
    assert [(line[0], line[1]) for line in lines] == [
        (a, s) for a in ("attention", "grassmann") for s in ("dev", "test")
    ]
    for arm, name, theirs, ours, difference, interval, *_, seeds, verdict in lines:
        means = [
            sum(rate(run / track / arm / f"seed{seed}/score/{name}.json") for seed in (0, 1)) / 2
            for track in ("espnet", "own")
        ]
        assert (float(theirs), float(ours)) == pytest.approx(means, abs=0.006)
        assert float(difference) == pytest.approx(means[0] - means[1], abs=0.006)
        low, high = map(float, interval.strip("[]").split(","))
        assert low <= float(difference) <= high and seeds == "2 / 2"
        assert verdict in ("tie", "own better", "espnet better")


def test_a_track_may_have_fewer_seeds(run):
    study = read_json(run / "study.json")
    study["study"]["track_seeds"] = {"espnet": [1]}
    write_json(run / "study.json", study)
    shutil.rmtree(run / "espnet/attention/seed0"), shutil.rmtree(run / "espnet/grassmann/seed0")
    write_comparisons(run)
    build_report(run)  # nothing is missing
    assert {line[-2] for line in agreement.tables(Study.read(run)).arms.cells} == {"1 / 2"}
    text = (run / "tables.md").read_text(encoding="utf-8")
    assert "seeds missing" not in text and "| espnet | attention | 26,958,472 | 1 |" in text


def test_prefix_search_beside_argmax(run):
    for seed, texts in ((0, ["A B", "C"]), (1, ["A", "C"])):
        place = run / "espnet/attention" / f"seed{seed}"
        # the second hypotheses are those of the other seed
        shutil.copytree(run / f"espnet/attention/seed{1 - seed}/score", place / "prefix_search/score")
        write_text(place / "hyp/test/text", "u1 A B\nu2 C\n")
        write_text(place / "espnet_argmax/test/text", f"u1 {texts[0]}\nu2 {texts[1]}\n")
    lines = agreement.tables(Study.read(run)).searches.cells
    assert [line[:2] for line in lines] == [["attention", "dev"], ["attention", "test"]]
    for line in lines:
        assert line[2] == line[3] and float(line[4]) == 0  # the same scores, pooled
    assert lines[1][5] == "3 of 4" and lines[0][5] == "-"


def test_a_missed_check_is_a_warning(run):
    entry = {"check": "loss, fp32", "about": "attention", "value": 2e-3, "bound": 1e-5, "passed": False}
    write_json(run / "agreement.json", {"checks": [entry, {**entry, "bound": None, "passed": True}]})
    build_report(run)
    text = (run / "tables.md").read_text(encoding="utf-8")
    assert "| loss, fp32 | attention | 0.002 | 1e-05 | MISSED |" in text and "for information" in text
    assert "The tracks do not agree: loss, fp32, attention: 0.002, bound 1e-05." in text


def test_one_track_has_no_such_tables(tmp_path):
    make_study(tmp_path)
    assert not agreement.has_tracks(Study.read(tmp_path))
