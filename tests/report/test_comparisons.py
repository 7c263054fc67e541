"""Comparing the arms of a study, measuring parity and passing its gate."""

import json
import re

import numpy as np
import pytest

from geomix.cli import main
from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.speech.comparison import compare_systems
from geomix.speech.manifest import Utterance, write_manifest
from geomix.speech.scoring import read_score, read_text, read_utt2spk, score_texts
from geomix.statistics import crossed_t_interval, holm, mapsswe, paired_bootstrap
from geomix.studies.comparison import compare_study
from geomix.studies.gate import measure_anchor, measure_parity, pass_gate
from geomix.studies.speech import SPEECH
from tests.report.made_up import make_run, make_study, make_training


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    make_run(folder, seeds=(0, 1), arms=("attention", "grassmann", "symmetric"))
    return folder


def rows(folder, arm, seed, name):
    """Word errors and words by speaker, straight from the TSV."""
    header, *lines = (folder / "own" / arm / f"seed{seed}" / "score" / f"{name}.tsv").read_text().splitlines()
    table = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    speakers = sorted({r["speaker"] for r in table})
    total = lambda key: [sum(int(r[key]) for r in table if r["speaker"] == s) for s in speakers]
    return total("word_errors"), total("words"), [r["alignment"] for r in table]


def test_every_pair_is_compared_and_only_planned_ones_are_marked(run):
    entries = read_json(run / "comparisons.json")
    assert len(entries) == 2 * 3  # sets x pairs
    planned = {(e["a"], e["b"]) for e in entries if e["planned"]}
    assert planned == {("grassmann", "attention"), ("grassmann", "symmetric")}
    assert {(e["a"], e["b"]) for e in entries if not e["planned"]} == {("attention", "symmetric")}
    assert all(
        {"track", "low", "high", "t_low", "t_high", "p_improvement", "verdict", "resamples", "method"} <= e.keys()
        for e in entries
    )
    # epochs were selected on dev: outside Holm's family, and said
    assert all(
        e["holm_p"] is None and "epochs were selected on this set" in e["warnings"]
        for e in entries
        if e["set"] == "dev"
    )


def test_figures_are_those_of_the_statistics(run):
    entries = [e for e in read_json(run / "comparisons.json") if e["set"] == "test"]
    for e in entries:
        a, b = ([rows(run, e[side], seed, "test") for seed in (0, 1)] for side in "ab")
        errors = [np.array([r[0] for r in arm]) for arm in (a, b)]
        words = a[0][1]
        boot = paired_bootstrap(*errors, words, resamples=1000, seed=0)
        t = crossed_t_interval(*errors, words)
        assert (e["difference"], e["low"], e["high"]) == pytest.approx((boot.estimate, boot.low, boot.high))
        assert (e["t_low"], e["t_high"], e["p"]) == pytest.approx((t.low, t.high, t.p))
        assert [m["p"] for m in e["mapsswe"]] == pytest.approx([mapsswe(x[2], y[2]).p for x in a for y in b])
        assert (e["speakers"], e["seeds_a"], e["seeds_b"]) == (24, 2, 2)
        tie = e["low"] <= 0 <= e["high"] or e["t_low"] <= 0 <= e["t_high"]
        assert e["verdict"] == ("tie" if tie else "a better" if e["difference"] < 0 else "b better")
    family = [e for e in entries if e["planned"]]
    assert [e["holm_p"] for e in family] == pytest.approx(holm([e["p"] for e in family]))


def test_a_missing_score_is_named_and_partial_goes_without(run, tmp_path):
    make_study(tmp_path, arms=("attention", "grassmann", "no_mixer"), seeds=(0, 1))
    make_training(tmp_path, "own", "attention", 0, rate=0.1)
    make_training(tmp_path, "own", "grassmann", 1, rate=0.1)
    with pytest.raises(UserError, match=r"attention/seed1/score/dev.tsv: no such file"):
        compare_study(SPEECH, tmp_path)
    entries = compare_study(SPEECH, tmp_path, partial=True)
    assert {(e["a"], e["b"]) for e in entries} == {("grassmann", "attention")}
    assert "one seed of grassmann and of attention" in " ".join(entries[0]["warnings"])


def texts(speakers, wrong):
    """Ten words a speaker, of which `wrong[speaker]` are misheard."""
    reference = {f"s{s:02}": " ".join("ABCDEFGHIJ") for s in range(speakers)}
    hypotheses = {
        f"s{s:02}": " ".join("X" if i < wrong[s] else w for i, w in enumerate("ABCDEFGHIJ")) for s in range(speakers)
    }
    return score_texts(reference, hypotheses, {id: id for id in reference})


def test_verdicts_and_warnings():
    good, bad = texts(24, [1, 2, 1] * 8), texts(24, [3, 4, 5] * 8)
    compare = lambda a, b: compare_systems({0: a}, {0: b}, resamples=1000, seed=0)
    assert compare(good, bad)["verdict"] == "a better"
    assert compare(bad, good)["verdict"] == "b better"
    assert compare(good, good)["verdict"] == "tie"
    assert "one seed of a and of b" in compare(good, bad)["warnings"][0]
    few = compare(texts(5, [1, 2, 1, 0, 1]), texts(5, [3, 4, 5, 3, 4]))
    assert any("only 5 speakers" in w for w in few["warnings"])
    lone = compare(texts(1, [1]), texts(1, [8]))
    assert (lone["verdict"], lone["low"], lone["p"]) == ("tie", None, None)
    assert "single speaker" in lone["warnings"][0]
    with pytest.raises(UserError, match="different references"):
        compare(good, texts(23, [1] * 23))


def test_an_interval_that_only_one_method_clears_is_a_tie():
    """Five speakers, four of them 10 points better: the percentile interval leaves zero out, the t-interval does not."""
    found = compare_systems(
        {0: texts(5, [1, 1, 1, 1, 3])}, {0: texts(5, [2, 2, 2, 2, 3])}, ("new", "old"), resamples=1000, seed=0
    )
    assert found["high"] <= 0 or found["t_high"] < 0
    sides = [lo * hi > 0 for lo, hi in ((found["low"], found["high"]), (found["t_low"], found["t_high"]))]
    assert found["verdict"] == ("a better" if all(sides) else "tie")
    assert any("holds zero" in w for w in found["warnings"]) == (sides[0] != sides[1])


def gate(wer, tolerance=0.5, source=None, **more):
    targets = [{"set": "test", "wer": wer, "tolerance": tolerance, "source": source}]
    return {
        "track": "own",
        "arm": "attention",
        "seeds": [0, 1],
        "targets": targets,
        "mode": "enforce",
        "fallback": None,
    } | more


def test_parity_is_measured_and_opens_the_gate(run, tmp_path):
    scores = [read_score(run / "own" / "attention" / f"seed{s}" / "score" / "test.tsv").words.rate for s in (0, 1)]
    parity = measure_parity(SPEECH, run, gate(sum(scores) / 2))
    assert parity["passed"] and parity["anchor"] == "attention"
    assert parity["measured"]["test"] == pytest.approx(sum(scores) / 2)
    assert parity["sentence"].startswith("target of our own reached: attention has ")
    assert pass_gate(run / "parity.json") == parity["sentence"]
    published = measure_parity(SPEECH, run, gate(sum(scores) / 2, source="a paper"))
    assert published["sentence"] == parity["sentence"].replace("target of our own", "parity")
    assert published["sources"] == {"test": "a paper"}


def test_a_missed_gate_says_what_to_do(run):
    measure_parity(SPEECH, run, gate(2.0))
    with pytest.raises(UserError, match=r"json: target of our own not reached: .*missed by .*'target not reached'$"):
        pass_gate(run / "parity.json")
    measure_parity(SPEECH, run, gate(2.0, source="a paper"))
    with pytest.raises(UserError, match=r"json: parity not reached: .*gate.mode to record .*'parity not reached'$"):
        pass_gate(run / "parity.json")
    parity = measure_parity(SPEECH, run, gate(2.0, mode="record"))
    assert not parity["passed"] and parity["anchor"] is None
    assert pass_gate(run / "parity.json").startswith("target of our own not reached")


def test_the_fallback_is_another_anchor(run):
    fallback = {
        "track": "own",
        "arm": "symmetric",
        "seeds": [0],
        "targets": [{"set": "test", "wer": 40.0, "tolerance": 0}],
    }
    parity = measure_parity(SPEECH, run, gate(2.0, fallback=fallback))
    assert (parity["passed"], parity["anchor"]) == (False, "symmetric")
    assert pass_gate(run / "parity.json").endswith("anchored on symmetric")
    assert "not reached: attention has" in parity["sentence"] and "; fallback: target" in parity["sentence"]


def test_the_fallback_is_measured_only_where_the_gates_own_arm_missed(run):
    """It is not even trained where that arm passed: its scores are not there."""
    fallback = gate(9.6, arm="e_branchformer")
    anchor = measure_anchor(SPEECH, run, gate(40.0, fallback=fallback))
    assert anchor["passed"] and read_json(run / "anchor.json") == anchor
    parity = measure_parity(SPEECH, run, gate(40.0, fallback=fallback))
    assert (parity["passed"], parity["anchor"], parity["fallback"]) == (True, "attention", None)
    assert {key: parity[key] for key in anchor} == anchor
    assert not measure_anchor(SPEECH, run, gate(2.0, fallback=fallback))["passed"]
    with pytest.raises(UserError, match=r"e_branchformer/seed0/score/test.json: no such file"):
        measure_parity(SPEECH, run, gate(2.0, fallback=fallback))


def test_parity_needs_its_score(tmp_path):
    with pytest.raises(UserError, match=r"attention/seed0/score/test.json: no such file"):
        measure_parity(SPEECH, tmp_path, gate(9.8))
    path = tmp_path / "own" / "attention" / "seed0" / "score" / "test.json"
    write_json(path, {"words": {"rate": None}})
    with pytest.raises(UserError, match="has no word error rate"):
        measure_parity(SPEECH, tmp_path, gate(9.8))


def test_compare_command(tmp_path, capsys):
    rng = np.random.default_rng(0)
    files = {name: [] for name in ("ref", "a", "b", "utt2spk")}
    for s in range(25):
        for u in range(4):
            words = rng.choice(list("ABCDEFGH"), 10)
            for name, rate in (("ref", 0), ("a", 0.1), ("b", 0.4)):
                heard = ["X" if rng.random() < rate else w for w in words]
                files[name].append(f"s{s}-{u} {' '.join(heard)}")
            files["utt2spk"].append(f"s{s}-{u} s{s}")
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    paths = [str(tmp_path / name) for name in ("ref", "a", "b")]
    main(
        [
            "compare",
            *paths,
            "--utt2spk",
            str(tmp_path / "utt2spk"),
            "--resamples",
            "500",
            "--json",
            str(tmp_path / "out.json"),
        ]
    )
    out = capsys.readouterr().out
    found = json.loads((tmp_path / "out.json").read_text())
    assert re.search(rf"A - B = {found['difference']:+.2f} points: A is better", out)
    assert "500 resamples" in out and "25 speakers" in out and "MAPSSWE p = " in out
    with pytest.raises(SystemExit):
        main(["compare", *paths, "--utt2spk", str(tmp_path / "absent")])
    assert "absent: no such file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", *paths])
    assert "does not name speakers" in capsys.readouterr().err

    # a manifest is a reference that knows its speakers
    texts, speakers = read_text(tmp_path / "ref"), read_utt2spk(tmp_path / "utt2spk")
    rows = [Utterance(u, speakers[u], str(tmp_path / f"{u}.flac"), 16000, 1.0, text) for u, text in texts.items()]
    write_manifest(tmp_path / "set.tsv", rows)
    main(["compare", str(tmp_path / "set.tsv"), *paths[1:], "--resamples", "500"])
    assert capsys.readouterr().out.replace("set.tsv", "ref") == out
