"""Alignments and what they add up to, against sclite, kaldialign and the score itself."""

import csv
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import kaldialign
import pytest

from geomix.cli import main
from geomix.errors import UserError
from geomix.speech.alignments import align_score, confusions, speaker_rates, word_rates
from geomix.speech.scoring import read_text, score_texts
from tests.speech.test_scoring import corrupted

SCLITE = shutil.which("sclite") or "/usr/lib/sctk/bin/sclite"
REFERENCES = {"u1": "GO TO FIFTY", "u2": "STOP"}
HYPOTHESES = {"u1": "GO TWO FIFTY THE", "u2": ""}
SPEAKERS = {"u1": "ann", "u2": "bob"}


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_details_by_hand(tmp_path, capsys):
    for name, texts in (("ref", REFERENCES), ("hyp", HYPOTHESES), ("utt2spk", SPEAKERS)):
        (tmp_path / name).write_text("".join(f"{id} {text}\n" for id, text in texts.items()))
    files = [str(tmp_path / name) for name in ("ref", "hyp")]
    main(["score", *files, "--utt2spk", str(tmp_path / "utt2spk"), "--details", str(tmp_path / "out")])
    assert str(tmp_path / "out" / "alignments.jsonl") in capsys.readouterr().out
    first, second = map(json.loads, (tmp_path / "out" / "alignments.jsonl").read_text().splitlines())
    steps = [["=", "GO", "GO"], ["S", "TO", "TWO"], ["=", "FIFTY", "FIFTY"], ["I", None, "THE"]]
    assert (first["id"], first["speaker"], first["steps"]) == ("u1", "ann", steps)
    assert (second["steps"], second["deletions"]) == ([["D", "STOP", None]], 1)
    rows = [list(row.values()) for row in read_csv(tmp_path / "out" / "confusions.csv")]
    assert rows == [["S", "TO", "TWO", "1"], ["I", "", "THE", "1"], ["D", "STOP", "", "1"]]
    words = {row["word"]: row for row in read_csv(tmp_path / "out" / "words.csv")}
    assert (words["TO"]["error_rate"], words["THE"]["inserted"], words["THE"]["error_rate"]) == ("100.00", "1", "")
    speakers = read_csv(tmp_path / "out" / "speakers.csv")
    assert [(row["speaker"], row["errors"], row["wer"]) for row in speakers] == [
        ("ann", "2", "66.67"),
        ("bob", "1", "100.00"),
    ]


def test_words_are_those_that_the_normaliser_left_and_other_texts_are_refused():
    score = score_texts({"u": "It's A!"}, {"u": "its a"}, normaliser="letters")
    (found,) = align_score(score, {"u": "It's A!"}, {"u": "its a"}, normaliser="letters")
    assert [step.reference for step in found.steps] == ["it's", "a"]
    with pytest.raises(UserError, match="x.tsv: the alignment of u is not that of its reference of 3 words"):
        align_score(score, {"u": "one more word"}, {"u": "its a"}, normaliser="letters", name="x.tsv")
    with pytest.raises(UserError, match="has '=' for"):
        align_score(score, {"u": "it's an"}, {"u": "its a"}, normaliser="letters")


@pytest.mark.an4
def test_counts_are_those_of_sclite_and_kaldialign_on_an4(data_dir, tmp_path):
    if not Path(SCLITE).exists():
        pytest.skip("no sclite: install the Debian package sctk")
    files = sorted((data_dir / "an4" / "test").rglob("*.trans.txt"))
    references = {key: value for file in files for key, value in read_text(file).items()}
    hypotheses = corrupted(references, 0.15, 3)
    speakers = {id: id.split("-")[0] for id in references}
    score = score_texts(references, hypotheses, speakers)
    aligned = align_score(score, references, hypotheses)
    for u in aligned:
        kaldi = kaldialign.edit_distance(references[u.id].split(), hypotheses[u.id].split())
        assert u.words.errors == kaldi["total"]
        assert Counter(step.kind for step in u.steps if step.kind != "=") == Counter(_kinds(u.words))

    for name, texts in (("ref", references), ("hyp", hypotheses)):
        lines = [f"{text} ({id.replace('-', '_', 1)})\n" for id, text in texts.items()]
        (tmp_path / name).write_text("".join(lines))
    command = [SCLITE, "-s", "-i", "spu_id", "-r", "ref", "trn", "-h", "hyp", "trn", "-o", "dtl", "stdout"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=True).stdout
    theirs = Counter()
    for kind, title in (("S", "CONFUSION PAIRS"), ("I", "INSERTIONS"), ("D", "DELETIONS")):
        section = report.split(title)[1].split("-------")[0]
        for count, words in re.findall(r"^ *\d+: +(\d+) +-> +(.+)$", section, re.MULTILINE):
            reference, _, hypothesis = words.partition(" ==> ")
            pair = (reference, hypothesis) if kind == "S" else (None, words) if kind == "I" else (words, None)
            theirs[kind, *(word.strip() if word else None for word in pair)] = int(count)
    assert {(kind, r, h): count for kind, r, h, count in confusions(aligned)} == dict(theirs)
    assert sum(r.reference for r in word_rates(aligned)) == score.words.reference
    assert sum(counts.errors for _, counts in speaker_rates(aligned).values()) == score.words.errors


def _kinds(counts):
    kinds = {"S": counts.substitutions, "I": counts.insertions, "D": counts.deletions}
    return {kind: count for kind, count in kinds.items() if count}
