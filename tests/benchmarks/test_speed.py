"""The speed probe: its work formulas against the published table, its forms against each other, its report."""

import csv
import json

import pytest

from geomix.benchmarks.speed import measure
from geomix.benchmarks.speed.measure import measure_piece
from geomix.benchmarks.speed.page import Beside, beside_published, build_report, paper_over_anchored
from geomix.benchmarks.speed.pieces import ARMS, Sizes
from geomix.benchmarks.speed.work import block_work
from geomix.errors import UserError
from tests.conftest import ROOT


def test_flops_of_the_published_table():
    """GFLOP of a block's training step at 16,384 tokens, L 128, 512, 4096 (attention's scores counted as causal)."""
    gflop = {
        form: [round(block_work(form, length)["block"]["flop"] / 1e9, 1) for length in (128, 512, 4096)]
        for form in ("attention", "anchored", "paper")
    }
    assert gflop == {"attention": [80.5, 90.2, 180.4], "anchored": [77.7] * 3, "paper": [140.1] * 3}


def test_bytes_of_the_published_estimate():
    """Bytes a token forward at two bytes a number: attention 7.2 kB with its norm, fused mixer 1.5 kB; the paper's form far above."""
    a_token = lambda form, what: block_work(form, 128, size=2)[what]["bytes"] / 3 / 16_384
    norm = 2 * 3 * Sizes().width
    assert a_token("attention", "mixer") + norm == pytest.approx(7200, rel=0.1)
    assert a_token("fused", "mixer") == pytest.approx(1500, rel=0.25)
    assert a_token("paper", "mixer") > 5 * a_token("anchored", "mixer")


def test_the_arms_are_those_of_the_speech_study():
    from geomix.models.conformer import ConformerConfig
    from geomix.models.flops import parameter_count

    counts = {arm: parameter_count(ConformerConfig.from_dict({"vocab": 5000, **keys})) for arm, keys in ARMS.items()}
    assert counts == {
        "attention": 26_958_472,
        "grassmann": 26_021_992,
        "symmetric": 26_021_992,
        "no_mixer": 26_945_032,
    }


SMALL = Sizes(
    lengths=(16, 32), tokens=64, width=16, rank=4, ff_dim=32, utterances=2, units=5, vocabulary=50, encoder_seconds=(1.0, 2.0),
    arms={"attention": ARMS["attention"], "no_mixer": {"mixer": {"mixer": "none"}, "blocks": 1, "width": 16, "ff_dim": 16}},
)  # fmt: skip
PIECES = ("block-16", "block-32", "encoder-no_mixer-1", "encoder-no_mixer-2", "ctc")


@pytest.fixture
def rates(monkeypatch):
    """A machine's rates that take no time to measure."""
    monkeypatch.setattr(
        measure, "machine_rates", lambda device: {"flops": 1e11, "flops_source": "measured", "bytes": 1e10}
    )


def test_pieces_to_report(rates, tmp_path):
    files = []
    for piece in PIECES:
        files.append(tmp_path / f"{piece}.json")
        measure_piece(piece, files[-1], budget=0.01, device="cpu", sizes=SMALL)
    record = build_report(files, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out/speed.csv").open()))
    assert {(r["what"], r["form"], r["length"]) for r in rows if r["part"] == "block"} == {
        (what, form, length)
        for what in ("mixer", "block")
        for form in ("attention", "paper", "anchored")
        for length in ("16", "32")
    }
    for row in rows:
        assert float(row["seconds"]) > 0
        if row["part"] == "block":
            assert 0 < float(row["of_floor"]) and float(row["gflop"]) > 0 and float(row["gbyte"]) > 0
    assert set(record["ratios"]["block"]) == {"16", "32"}
    assert record["ctc"][0]["loss_difference"] < 1e-3 and record["ctc"][0]["gradient_difference"] < 2e-3
    assert set(record["pieces"]) == set(PIECES)
    for name in ("block.svg", "block.png", "encoder.svg", "encoder.png", "speed.md", "record.json"):
        assert (tmp_path / "out" / name).stat().st_size > 200


def test_pieces_of_two_machines_are_refused(rates, tmp_path):
    measure_piece("ctc", tmp_path / "a.json", budget=0.01, device="cpu", sizes=SMALL)
    other = json.loads((tmp_path / "a.json").read_text())
    other["record"]["threads"] = 64
    (tmp_path / "b.json").write_text(json.dumps(other))
    with pytest.raises(UserError, match="with 1 threads and .* with 64 threads"):
        build_report([tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "out")


def test_an_unknown_piece_is_named(tmp_path):
    with pytest.raises(UserError, match="piece 'block-1' of the speed probe is not known"):
        measure_piece("block-1", tmp_path / "x.json")


def test_ratio_by_hand_and_only_of_forms_that_agreed():
    times = {("mixer", "paper"): 3.0, ("mixer", "anchored"): 0.5, ("block", "paper"): 4.0, ("block", "anchored"): 1.25}
    rows = [
        {"part": "block", "what": what, "form": form, "length": 128, "seconds": seconds, "agrees": True}
        for (what, form), seconds in times.items()
    ]
    assert paper_over_anchored(rows) == {"mixer": {"128": 6.0}, "block": {"128": 3.2}}
    rows[1]["agrees"] = False
    del rows[3]["agrees"]
    assert paper_over_anchored(rows) == {"mixer": {}, "block": {}}


def test_ratios_beside_the_published_ones():
    """[Tested2026]: 3.5 times as fast as the paper's form at 128 tokens, there 1.4 times as slow as attention."""
    block = lambda form, seconds, **more: {
        "part": "block", "what": "block", "form": form, "length": 128, "seconds": seconds, **more
    }  # fmt: skip
    rows = [block("attention", 2.0), block("paper", 9.0, agrees=True), block("anchored", 3.0, agrees=True)]
    rows += [
        {"part": "step", "what": "training step", "form": f, "length": 1271, "seconds": 1.0}
        for f in ("grassmann", "attention")
    ]
    assert beside_published(rows) == [
        Beside("block: paper over anchored", 128, 3.0, 3.52),
        Beside("block: anchored over attention", 128, 1.5, 1.41),
        Beside("step: grassmann over attention", 1271, 1.0, 1.07),
    ]
    rows[1]["agrees"] = False
    assert len(beside_published(rows)) == 2


def test_published_pieces_are_read(tmp_path):
    """Pieces of before forms were compared in their run: the same table, no ratio."""
    published = ROOT / "results/published/speed"
    record = build_report(sorted((published / "pieces").glob("*.json")), tmp_path)
    assert record["ratios"] == {"mixer": {}, "block": {}}
    lines = lambda folder: sorted((folder / "speed.csv").read_text().splitlines())
    assert lines(tmp_path) == lines(published)
