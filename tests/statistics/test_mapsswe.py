"""MAPSSWE against NIST's sc_stats (Debian package sctk) and by hand; Holm by hand; the gate."""

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scipy import stats

from geomix.speech.scoring import read_text, score_texts
from geomix.statistics import error_segments, gate_verdict, holm, mapsswe
from tests.speech.test_scoring import corrupted

SCTK = Path(shutil.which("sc_stats") or "/usr/lib/sctk/bin/sc_stats").parent


def test_segments_by_hand():
    #    one error each, two good words between end the first segment; the stretch before holds none
    assert error_segments("==S==", "==D==") == [(1, 1)]
    assert error_segments("S==D", "====") == [(1, 0), (1, 0)]
    assert error_segments("S=D=", "====") == [(2, 0)]  # one good word is no boundary
    assert error_segments("=S===", "===S=") == [(1, 1)]  # good in one system only is no boundary either
    assert error_segments("==I==", "====") == [(1, 0)]
    assert error_segments("====II", "====") == [(2, 0)]
    assert error_segments("====", "====II") == [(0, 2)]
    assert error_segments("===", "===") == []
    assert error_segments("I", "") == [(1, 0)]
    with pytest.raises(ValueError, match="align both systems with the same reference"):
        error_segments("==", "=")


def test_statistic_by_hand():
    # differences of the segments: 1, 1, -1, 2
    found = mapsswe(["S==", "D==", "===", "DD="], ["===", "===", "S==", "==="])
    std = math.sqrt(((0.25**2) * 2 + 1.75**2 + 1.25**2) / 3)
    assert (found.segments, found.mean, found.std) == (4, 0.75, pytest.approx(std))
    assert found.z == pytest.approx(0.75 / (std / 2))
    assert found.p == pytest.approx(2 * (1 - stats.norm.cdf(found.z)))
    assert mapsswe(["==", "=S"], ["==", "=S"]).p == 1.0
    assert mapsswe(["==="], ["==="]).p == 1.0
    assert math.isnan(mapsswe(["S=="], ["==="]).p)


@pytest.mark.an4
@pytest.mark.parametrize(("rate_a", "rate_b"), [(0.2, 0.3), (0.1, 0.1), (0.5, 0.4), (0.25, 0.15), (0.05, 0.08)])
def test_agrees_with_sc_stats_on_an4(rate_a, rate_b, data_dir, tmp_path):
    if not (SCTK / "sc_stats").exists():
        pytest.skip("no sc_stats: install the Debian package sctk")
    files = sorted((data_dir / "an4" / "test").rglob("*.trans.txt"))
    references = {key: value for file in files for key, value in read_text(file).items()}
    a, b = corrupted(references, rate_a, 1), corrupted(references, rate_b, 2)
    for name, texts in (("ref", references), ("a", a), ("b", b)):
        lines = [f"{text} ({id.replace('-', '_', 1)})\n" for id, text in texts.items()]
        (tmp_path / name).write_text("".join(lines))
    alignments = "".join(
        subprocess.run(
            [SCTK / "sclite", "-i", "spu_id", "-r", "ref", "trn", "-h", name, "trn", "-o", "sgml", "stdout"],
            cwd=tmp_path, capture_output=True, text=True, errors="replace", check=True,
        ).stdout
        for name in "ab"
    )  # fmt: skip
    report = subprocess.run(
        [SCTK / "sc_stats", "-p", "-t", "mapsswe", "-v", "-n", "-"],
        input=alignments, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=True,
    ).stdout  # fmt: skip
    line = re.search(
        r"# segs: (\d+)\).*\(mean: +(\S+)\) \(std dev: +(\S+)\) \(Z Stat: +(\S+)\) \(Stat Diff: (\w+)\)", report
    )
    found = mapsswe(*([u.alignment for u in score_texts(references, hyps).utterances] for hyps in (a, b)))
    assert found.segments == int(line[1])
    assert (found.mean, found.std, found.z) == pytest.approx([float(line[i]) for i in (2, 3, 4)], abs=6e-4)
    assert (found.p < 0.05) == (line[5] == "Yes")


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == pytest.approx([1.0, 1.0])
    adjusted = holm([0.02, math.nan, 0.01])  # a test that could not be made does not count
    assert adjusted[0::2] == pytest.approx([0.02, 0.02]) and math.isnan(adjusted[1])
    assert holm([]) == []


def test_gate_is_one_sided_and_inclusive():
    target, tolerance = {"clean": 9.8, "other": 23.3}, {"clean": 0.3, "other": 0.5}
    assert gate_verdict({"clean": 10.1, "other": 23.8}, target, tolerance, arm="attention").passed
    assert gate_verdict({"clean": 5.0, "other": 12.0}, target, tolerance, arm="attention").passed
    sentence = (
        "not reached: attention has 9.00 % WER on clean (target 9.8 + 0.3) and 24.05 % WER on other "
        "(target 23.3 + 0.5, missed by 0.25)"
    )
    # parity is with numbers that were published, all of them
    for sources, aim in (
        (None, "target of our own"),
        ({"clean": "ESPnet", "other": None}, "target of our own"),
        ({"clean": "ESPnet", "other": "ESPnet"}, "parity"),
    ):
        measured = {"clean": 9.0, "other": 24.05}
        missed = gate_verdict(measured, target, tolerance, arm="attention", sources=sources)
        assert not missed.passed and missed.sentence == f"{aim} {sentence}"
    with pytest.raises(ValueError, match="no measured value for other"):
        gate_verdict({"clean": 9.0}, target, tolerance, arm="attention")
    with pytest.raises(ValueError, match="no target"):
        gate_verdict({}, {}, {}, arm="attention")
