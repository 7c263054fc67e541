"""Tables and figures of a made-up run."""

import csv
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.report import build_report, figure_files, figure_names
from geomix.report.rows import CSV
from geomix.studies.comparison import compare_study
from geomix.studies.gate import measure_parity, pass_gate
from geomix.studies.speech import SPEECH
from tests.report.made_up import make_run, make_study, make_training, write_comparisons

ARMS = ("attention", "grassmann", "symmetric", "no_mixer")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "made_up"
    make_run(folder, seeds=(0, 1))
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture
def no_figures(monkeypatch):
    """Tables only: drawing takes a second a report."""
    monkeypatch.setattr("geomix.report.build.draw_figures", lambda results, folder: [])


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.usefixtures("no_figures")
def test_rows_hold_the_pooled_counts_and_the_interval(run):
    build_report(run)
    rows = table(run / "tables.csv")
    assert tuple(rows[0]) == CSV
    assert {(r["track"], r["arm"], r["set"]) for r in rows} == {
        ("own", arm, s) for arm in ARMS for s in ("dev", "test")
    }
    for row in rows:
        scores = [read_json(run / "own" / row["arm"] / f"seed{s}" / "score" / f"{row['set']}.json") for s in (0, 1)]
        assert float(row["wer"]) == pytest.approx(np.mean([s["words"]["rate"] for s in scores]), abs=0.006)
        assert float(row["cer"]) == pytest.approx(np.mean([s["characters"]["rate"] for s in scores]), abs=0.006)
        assert int(row["words"]) == scores[0]["words"]["reference"]
        kinds = sum(float(row[kind]) for kind in ("substitutions", "insertions", "deletions"))
        assert 100 * kinds / int(row["words"]) == pytest.approx(float(row["wer"]), abs=0.02)
        assert float(row["wer_low"]) < float(row["wer"]) < float(row["wer_high"])
        assert (row["corpus"], row["seeds"], row["speakers"], row["unmatched"]) == ("words", "2", "24", "false")
    assert {r["params"] for r in rows if r["arm"] == "grassmann"} == {"26021992"}


@pytest.mark.usefixtures("no_figures")
def test_a_published_checkpoint_decoded_here_is_a_reference_row(run):
    """The scores of an arm, laid where a checkpoint's lie: the same rate, marked as a reference, in no contrast."""
    place = run / "granite" / "tiny-ctc" / "seed0"
    shutil.copytree(run / "own" / "attention" / "seed0" / "score", place / "score")
    for path in (place / "score").glob("*.json"):
        write_json(path, {**read_json(path), "normaliser": "letters"})
    record = {"corpus": "words", "parameters": 12345, "note": "published checkpoint, not trained here", "head": "ctc"}
    write_json(place / "record.json", record)
    build_report(run)
    rows = {row["set"]: row for row in table(run / "tables.csv") if row["track"] == "granite"}
    assert rows.keys() == {"dev", "test"}
    rate = read_json(place / "score" / "test.json")["words"]["rate"]
    assert rows["test"]["wer"] == f"{rate:.2f}" and rows["test"]["params"] == "12345"
    assert rows["test"]["note"].startswith("reference: published checkpoint") and "letters" in rows["test"]["note"]
    text = (run / "tables.md").read_text()
    assert re.search(rf"\| granite \(reference\) \| tiny-ctc \| 12,345 \| - \|.*{rate:.2f} \[", text)
    assert "- tiny-ctc: reference: published checkpoint" in text
    assert not [e for e in read_json(run / "comparisons.json") if "tiny-ctc" in (e["a"], e["b"])]
    path = place / "score" / "test.tsv"
    path.write_text("\n".join(path.read_text().splitlines()[:9]) + "\n")
    with pytest.raises(UserError, match=r"test.tsv: has \d+ reference words, its .json \d+"):
        build_report(run)
    path.unlink()
    with pytest.raises(UserError, match=r"tiny-ctc/seed0/score/test.tsv: no such file, and the reference row"):
        build_report(run)


def test_markdown_says_what_was_asked_and_found(run):
    build_report(run)
    text = (run / "tables.md").read_text()
    assert "**Gate: target of our own reached: attention has " in text and "parity" not in text
    assert "Hypothesis, written before the runs: Grassmann ties symmetric." in text
    assert "| reference | Someone's Conformer | - | - | - | 9.8 |" in text
    planned, exploratory = text.split("## Planned contrasts")[1].split("## Exploratory contrasts")
    assert "| grassmann - no_mixer | own | test |" in planned and "| grassmann better |" in planned
    assert re.search(r"\| grassmann - symmetric \| own \| test \|.*\| tie \|", planned)
    assert "attention - no_mixer" in exploratory.split("## Errors")[0]
    assert "900 utterances, 1.00 h; by speed factor: 0.9 x 300, 1.0 x 300, 1.1 x 300" in text
    assert "Nondeterministic operations (ctc_loss_backward): all trainings." in text
    assert "Training utterances dropped (2 too short): all trainings." in text
    for name in ("wer", "training", "cost", "pairs"):
        assert (run / "figures" / f"{name}.svg").stat().st_size > 5000
        assert (run / "figures" / f"{name}.png").stat().st_size > 5000
        assert f"figures/{name}.svg" in text


def test_the_same_files_give_the_same_bytes(run, tmp_path):
    build_report(run)
    first = files(run)
    # in another process, at another place and time, with another hash seed
    moved = shutil.copytree(run, tmp_path / "elsewhere")
    for path in (moved / "tables.csv", moved / "tables.md"):
        path.unlink()
    shutil.rmtree(moved / "figures")
    program = (
        "import sys; from geomix.cli import main; main(['tables', sys.argv[1]]); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program, str(moved)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert files(moved) == first
    assert re.search(r"own +attention +26,958,472 +2 ", done.stdout)


@pytest.mark.parametrize(
    "absent",
    ["own/symmetric/seed1/record.json", "own/no_mixer/seed0/score/test.tsv", "comparisons.json", "parity.json"],
)
@pytest.mark.usefixtures("no_figures")
def test_a_row_without_its_record_is_an_error_that_names_it(run, absent):
    (run / absent).unlink()
    with pytest.raises(UserError, match=re.escape(absent)):
        build_report(run)
    assert not (run / "tables.csv").exists()


@pytest.mark.usefixtures("no_figures")
def test_partial_tables_mark_what_is_missing(run):
    shutil.rmtree(run / "own" / "no_mixer")
    (run / "own" / "symmetric" / "seed1" / "score" / "test.tsv").unlink()
    for name in ("comparisons.json", "parity.json"):
        (run / name).unlink()
    results = build_report(run, partial=compare_study(SPEECH, run, partial=True))
    rows = {(r["arm"], r["set"]): r for r in table(run / "partial" / "tables.csv")}
    assert rows["no_mixer", "test"]["note"] == "target not measured; missing" and rows["no_mixer", "test"]["wer"] == ""
    assert "1 of 2 seeds missing" in rows["symmetric", "test"]["note"] and rows["symmetric", "test"]["seeds"] == "1"
    text = (run / "partial" / "tables.md").read_text()
    assert "**Partial: 3 trainings are missing" in text
    assert "Missing: symmetric (own), seed 1: no own/symmetric/seed1/score/test.tsv." in text
    assert "grassmann - attention" in text and "grassmann - no_mixer" not in text
    assert re.search(r"no_mixer +- +0 of 2 +missing", results.text())
    assert not (run / "tables.csv").exists()


def test_partial_tables_of_nothing(tmp_path, run):
    shutil.rmtree(run / "own")
    build_report(run, partial=compare_study(SPEECH, run, partial=True))
    assert len(table(run / "partial" / "tables.csv")) == 8


@pytest.mark.usefixtures("no_figures")
def test_missed_parity_marks_each_table_and_row(run):
    study = read_json(run / "study.json")
    target = {"set": "test", "wer": 1.0, "tolerance": 0.1}
    measure_parity(SPEECH, run, study["gate"] | {"mode": "record", "targets": [target]})
    results = build_report(run)
    assert "(target not reached)" in (run / "tables.md").read_text() and "parity" not in results.text()
    measure_parity(
        SPEECH, run, study["gate"] | {"mode": "record", "targets": [target | {"source": "a paper, Table 1"}]}
    )
    build_report(run)
    assert all(row["note"].startswith("parity not reached") for row in table(run / "tables.csv"))
    assert "mode record). Target from: test, a paper, Table 1.\n" in (run / "tables.md").read_text()
    titles = [line for line in (run / "tables.md").read_text().splitlines() if line.startswith("## ")]
    assert titles[0] == "## Word error rate (parity not reached)"
    assert all("(parity not reached)" in title for title in titles if title not in ("## Warnings", "## Figures"))


@pytest.mark.usefixtures("no_figures")
def test_another_anchor_is_named(run):
    fallback = {
        "track": "own",
        "arm": "no_mixer",
        "seeds": [0],
        "targets": [{"set": "test", "wer": 40.0, "tolerance": 0}],
    }
    targets = [{"set": "test", "wer": 1.0, "tolerance": 0.1}]
    measure_parity(SPEECH, run, read_json(run / "study.json")["gate"] | {"targets": targets, "fallback": fallback})
    build_report(run)
    assert "## Word error rate (anchored on no_mixer)" in (run / "tables.md").read_text()


@pytest.mark.parametrize("stale", [True, False])
@pytest.mark.usefixtures("no_figures")
def test_a_study_without_a_gate_says_so(run, stale):
    write_json(run / "study.json", read_json(run / "study.json") | {"gate": None})
    if not stale:  # a parity.json of before the gate was taken away is not read
        (run / "parity.json").unlink()
    results = build_report(run)
    text = (run / "tables.md").read_text()
    assert "**No gate: no arm waited for" in text and "## Word error rate (no gate)" in text and "parity" not in text
    assert all(row["note"].startswith("no gate") for row in table(run / "tables.csv"))
    assert "No gate: no arm" in results.text()


def test_a_missed_gate_is_said_on_the_page_that_stands(run):
    """Passed, reported, then the target moved: the page does not go on saying that it was reached."""
    study = read_json(run / "study.json")
    build_report(run)
    (run / "study.json").unlink()  # it may be about to be written anew
    measure_parity(SPEECH, run, study["gate"] | {"targets": [{"set": "test", "wer": 1.0, "tolerance": 0.1}]})
    for _ in range(2):
        with pytest.raises(UserError, match=r"reached' \(.*tables.md, made before, now says so\)$"):
            pass_gate(run / "parity.json")
        text = (run / "tables.md").read_text()
        assert text.count("**Gate: target of our own not reached") == 1 and "own reached" not in text
        assert text.count("made before that measurement (target not reached)") == 1 and "| attention |" in text
        assert all(row["note"].startswith("target not reached") for row in table(run / "tables.csv"))
    (run / "tables.md").unlink()
    with pytest.raises(UserError, match=r"'target not reached'$"):  # no page, no word of one
        pass_gate(run / "parity.json")


@pytest.mark.parametrize("arms", [("attention", "no_mixer"), ("attention", "grassmann")])
def test_the_figures_are_those_that_the_configuration_declares(tmp_path, arms):
    study = make_study(tmp_path, arms=arms)
    build_report(tmp_path, partial=compare_study(SPEECH, tmp_path, partial=True))  # before anything is trained
    names = figure_files(study)
    assert ("pairs.svg" in names) == ("grassmann" in arms)
    assert sorted(names) == sorted(path.name for path in (tmp_path / "partial/figures").iterdir())
    make_run(tmp_path, arms=arms, seeds=(0,))
    build_report(tmp_path)
    assert sorted(names) == sorted(path.name for path in (tmp_path / "figures").iterdir())
    text = (tmp_path / "tables.md").read_text()
    assert [f"{name}.svg" for name in figure_names(study)] == re.findall(r"figures/(\w+.svg)", text)


@pytest.mark.usefixtures("no_figures")
def test_stale_comparisons_are_refused(run):
    make_training(run, "own", "grassmann", 1, rate=0.3)
    with pytest.raises(UserError, match=r"comparisons.json: has .* run the compare step again"):
        build_report(run)
    write_comparisons(run)
    entries = read_json(run / "comparisons.json")
    build_report(run)
    write_json(run / "comparisons.json", entries[:-1])
    with pytest.raises(UserError, match="11 contrasts where the study has 12"):
        build_report(run)


@pytest.mark.usefixtures("no_figures")
def test_rows_warn_of_one_seed_few_speakers_and_unmatched_size(tmp_path):
    study = make_run(tmp_path, arms=("attention", "grassmann"), seeds=(0,))
    make_training(tmp_path, "own", "attention", 0, rate=0.1, speakers=6)
    make_training(tmp_path, "own", "grassmann", 0, rate=0.1, speakers=6, unmatched=True)
    write_comparisons(tmp_path)
    measure_parity(SPEECH, tmp_path, study["gate"] | {"targets": [{"set": "test", "wer": 40.0, "tolerance": 0}]})
    build_report(tmp_path)
    row = next(r for r in table(tmp_path / "tables.csv") if r["arm"] == "grassmann" and r["set"] == "test")
    assert row["note"] == "one seed: the interval holds no variation between seeds; only 6 speakers; unmatched size"
    text = (tmp_path / "tables.md").read_text()
    assert "test has only 6 speakers" in text and "One seed only: attention (own), grassmann (own)." in text
    assert "26,021,992 (unmatched)" in text


@pytest.mark.usefixtures("no_figures")
def test_a_study_that_lacks_a_key_is_named(run):
    study = read_json(run / "study.json")
    del study["gate"]
    write_json(run / "study.json", study)
    with pytest.raises(UserError, match=r"study.json: has no 'gate'"):
        build_report(run)
