"""Tables of the language study from records alone: parity, contrasts by hand, marks, figures."""

import csv
import json
import math

import pytest

from geomix.cli import main
from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.report import build_report
from geomix.report.names import figure_files
from geomix.studies.comparison import compare_study
from geomix.studies.gate import measure_parity, pass_gate
from geomix.studies.language import LANGUAGE
from tests.report.made_up import PUBLISHED

RECORD = PUBLISHED / "wikitext2/language/grassmann/seed0/record.json"  # what a made-up record has besides
# the article's sweep: validation perplexity of seeds 0, 1, 2
ARTICLE = {
    "transformer": [247.1, 250.5, 246.2],
    "grassmann": [329.8, 329.6, 330.6],
    "symmetric": [329.3, 325.6, 326.2],
    "one_offset": [312.6],
}


@pytest.fixture
def folder(tmp_path):
    return write_study(tmp_path)


def write_study(
    root, kind="wikitext", version="raw", low=241.0, high=253.6, mode="enforce", values=ARTICLE, source="the article"
):
    """A results folder with the article's perplexities; test perplexity is 5 % higher, by tokens 1 % lower."""
    seeds = {arm: list(range(len(v))) for arm, v in values.items()}
    study = {
        "run": "article",
        "corpus": {"name": "wikitext-2-raw", "kind": kind, "version": version},
        "arms": {
            arm: {"mixer": "attention" if arm == "transformer" else "pair", "seeds": s} for arm, s in seeds.items()
        },
        "study": {"arms": list(values), "seeds": [0, 1, 2]},
        "comparison": {
            "planned": [["grassmann", "transformer"], ["grassmann", "symmetric"], ["one_offset", "grassmann"]]
        },
        "gate": {"arm": "transformer", "seeds": [0], "low": low, "high": high, "mode": mode, "source": source},
        "references": [{"system": "paper, Transformer", "source": "arXiv 2512.19428", "valid": 248.4}],
    }
    write_json(root / "study.json", study)
    splits = {
        split: {"tokens": 1000, "blocks": 160, "unigram_cross_entropy": 7.2} for split in ("train", "valid", "test")
    }
    for arm, perplexities in values.items():
        for seed, value in enumerate(perplexities):
            here = root / arm / f"seed{seed}"
            record = read_json(RECORD) | {
                "arm": arm,
                "seed": seed,
                "parameters": 12_585_472,
                "unmatched": False,
                "best_epoch": 20,
                "updates": 150,
                "tokens_per_second": 1000.0,
                "device": "a test",
                "commit": "0" * 40,
                "dirty": False,
                "settings": {
                    "model": {"blocks": 6, "width": 256, "ff_dim": 1024},
                    "training": {"epochs": 30, "batch": 32, "learning_rate": 1e-3},
                },
                "data": {
                    "name": "wikitext-2-raw", "vocabulary": 30522, "block": 128, "unigram_entropy": 7.19, "splits": splits,
                },
                "perplexity": {
                    "valid": {"batch_mean": value, "token": 0.99 * value},
                    "test": {"batch_mean": 1.05 * value, "token": 1.04 * value},
                },
            }  # fmt: skip
            write_json(here / "record.json", record)
            layers = [
                {"block": b, "sine_quantiles": {"0.5": 0.9 - 0.1 * b}, "narrow_share": 0.001 * b, "mean_gate": 0.5}
                for b in range(2)
            ]
            pair = arm != "transformer"
            write_json(here / "diagnostics.json", {"start": layers if pair else [], "end": layers if pair else []})
            lines = [
                {"kind": "step", "epoch": 1, "update": 50, "loss": 7.0},
                {"kind": "epoch", "epoch": 1, "update": 100, "train_loss": 7.0, "dev_perplexity": 2 * value},
                {"kind": "epoch", "epoch": 2, "update": 200, "train_loss": 6.0, "dev_perplexity": value},
            ]
            (here / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    study = json.loads((root / "study.json").read_text())
    measure_parity(LANGUAGE, root, study["gate"], study["corpus"]["name"])
    write_json(root / "comparisons.json", compare_study(LANGUAGE, root))
    return root


def test_the_articles_intervals(folder):
    """0.2859 and 1.301 to 1.362 against the Transformer; 0.994 to 1.025 against the control: rounding leaves 0.001."""
    found = {(c["a"], c["b"]): c for c in compare_study(LANGUAGE, folder) if c["set"] == "valid"}
    worse = found["grassmann", "transformer"]
    assert worse["log_difference"] == pytest.approx(0.2859, abs=5e-4)
    assert (worse["low"], worse["high"]) == pytest.approx((1.301, 1.362), abs=1e-3)
    assert worse["verdict"] == "transformer better" and worse["planned"] and worse["df"] == 2
    control = found["grassmann", "symmetric"]
    assert (control["low"], control["high"]) == pytest.approx((0.994, 1.025), abs=1e-3)
    assert control["verdict"] == "tie"
    assert control["welch_df"] > 2
    single = found["one_offset", "grassmann"]
    assert "low" not in single and single["verdict"] == "no interval" and "one seed" in single["warnings"][0]
    assert not found["symmetric", "one_offset"]["planned"]
    assert len(found) == 6


@pytest.mark.parametrize(
    "seed0, passed, words",
    [(247.1, True, "parity reached"), (253.6, True, "reached"), (253.7, False, "above it"), (240.0, False, "below it")],
)
def test_gate_on_the_published_range(tmp_path, seed0, passed, words):
    write_study(tmp_path, values={**ARTICLE, "transformer": [seed0, 300.0, 300.0]})
    parity = read_json(tmp_path / "parity.json")
    assert parity["passed"] == passed and words in parity["sentence"] and f"{seed0:.1f}" in parity["sentence"]
    if passed:
        pass_gate(tmp_path / "parity.json")
    else:
        with pytest.raises(UserError, match="published range 241 to 253.6"):
            pass_gate(tmp_path / "parity.json")


@pytest.mark.parametrize(
    "low, high, passed, words",
    [
        (None, 300.0, True, "published bound at most 300: parity reached"),
        (None, 10.0, False, "published bound at most 10: parity not reached, above it"),
        (241.0, None, True, "published bound at least 241: parity reached"),
        (300.0, None, False, "published bound at least 300: parity not reached, below it"),
        (None, None, True, "there is no published number"),
    ],
)
def test_a_gate_of_one_bound_holds_to_it(tmp_path, low, high, passed, words):
    write_study(tmp_path, low=low, high=high)
    parity = read_json(tmp_path / "parity.json")
    assert (parity["passed"], parity["anchor"]) == (passed, "transformer" if passed else None)
    assert words in parity["sentence"]


def test_a_range_without_a_source_is_a_target_of_our_own(tmp_path):
    write_study(tmp_path, source=None)
    sentence = "transformer has a validation perplexity of 247.1, target 241 to 253.6: target of our own reached"
    assert pass_gate(tmp_path / "parity.json") == sentence
    write_study(tmp_path, source=None, high=242.0, mode="record")
    build_report(tmp_path)
    text = (tmp_path / "tables.md").read_text()
    assert "**target not reached.**" in text and "target 241 to 242: target of our own not reached, above it" in text
    assert "parity" not in text


def test_a_study_without_a_gate_says_so(tmp_path):
    write_study(tmp_path)
    study = read_json(tmp_path / "study.json")
    write_json(tmp_path / "study.json", study | {"gate": None})
    for stale in (True, False):  # a parity.json of before the gate was taken away is not read
        if not stale:
            (tmp_path / "parity.json").unlink()
        build_report(tmp_path)
        text = (tmp_path / "tables.md").read_text()
        assert "**no gate.**" in text and "parity" not in text and "No gate: no arm waited" in text
        assert all("no gate" in row["note"] for row in csv.DictReader((tmp_path / "tables.csv").open()))


def test_a_missed_gate_is_said_on_the_page_that_stands(tmp_path):
    write_study(tmp_path)
    build_report(tmp_path)
    assert "parity reached" in (tmp_path / "tables.md").read_text()
    write_study(tmp_path, values={**ARTICLE, "transformer": [260.0, 261.0, 262.0]})
    with pytest.raises(UserError, match=r"tables.md, made before, now says so\)$"):
        pass_gate(tmp_path / "parity.json")
    text = (tmp_path / "tables.md").read_text()
    assert "parity not reached" in text and "parity reached" not in text and "made before that measurement" in text


def test_without_a_published_number_the_gate_is_recorded_and_open(tmp_path):
    write_study(tmp_path, kind="builtin", version=None, low=None, high=None, mode="record")
    assert "there is no published number for wikitext-2-raw" in pass_gate(tmp_path / "parity.json")
    build_report(tmp_path)
    assert "**not comparable with raw WikiText-2.**" in (tmp_path / "tables.md").read_text()


def test_a_recorded_miss_marks_every_table(tmp_path):
    write_study(tmp_path, mode="record", values={**ARTICLE, "transformer": [1388.4, 1388.0, 1389.0]})
    pass_gate(tmp_path / "parity.json")
    build_report(tmp_path)
    assert "**parity not reached.**" in (tmp_path / "tables.md").read_text()
    rows = list(csv.DictReader((tmp_path / "tables.csv").open()))
    assert all("parity not reached" in row["note"] for row in rows)


def test_tables(folder):
    build_report(folder)
    rows = {row["arm"]: row for row in csv.DictReader((folder / "tables.csv").open())}
    assert float(rows["transformer"]["valid"]) == pytest.approx(247.93, abs=0.01)
    assert float(rows["transformer"]["valid_sd"]) == pytest.approx(2.27, abs=0.01)
    assert float(rows["grassmann"]["test"]) == pytest.approx(1.05 * 330.0, abs=0.01)
    assert rows["one_offset"]["valid_sd"] == "" and rows["one_offset"]["note"] == "one seed: no interval"
    text = (folder / "tables.md").read_text()
    assert "| grassmann / transformer | 1.331 | 1.301 to 1.362 |" in text
    assert "| paper, Transformer |" in text and "248.4" in text
    assert "unigram entropy of the training tokens 7.190 nats, perplexity 1326" in text
    assert "; 150 updates (30 epochs) of 32 blocks each" in text
    assert "| grassmann | end | 0.90 0.80 | 0.10 % | 0.50 0.50 |" in text
    assert "(seed 0). Target from: valid, the article." in text
    names = figure_files(read_json(folder / "study.json"))
    assert sorted(names) == sorted(path.name for path in (folder / "figures").iterdir()) and len(names) == 6
    assert all((folder / "figures" / name).stat().st_size > 1000 for name in names)
    assert math.isclose(read_json(folder / "comparisons.json")[0]["ratio"], 1.331, abs_tol=1e-3)


def test_the_command_rebuilds_a_run_of_a_language_study_alone(tmp_path, capsys):
    write_study(tmp_path / "run/language")
    main(["tables", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert "# Language modelling, run article" in capsys.readouterr().out
    assert (tmp_path / "out/language/tables.csv").is_file() and not (tmp_path / "run/language/tables.csv").exists()
    with pytest.raises(SystemExit):
        main(["tables", str(tmp_path / "run"), "--partial"])
    assert "a language study has no partial tables" in capsys.readouterr().err


def test_the_same_records_give_the_same_bytes(folder):
    build_report(folder)
    first = {path.name: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".svg", ".md", ".csv")}
    build_report(folder)
    assert first == {
        path.name: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".svg", ".md", ".csv")
    }


def test_a_missing_record_is_named(folder):
    (folder / "grassmann/seed1/record.json").unlink()
    with pytest.raises(UserError, match="grassmann/seed1/record.json"):
        build_report(folder)
