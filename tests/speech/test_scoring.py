"""The scorer against jiwer, kaldialign and sclite, and what it refuses."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jiwer
import kaldialign
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomix.cli import main
from geomix.errors import UserError
from geomix.speech.normalisers import NORMALISERS
from geomix.speech.scoring import (
    Counts,
    align,
    read_score,
    read_text,
    read_utt2spk,
    score_texts,
    write_score,
)  # fmt: skip

SCLITE = shutil.which("sclite") or "/usr/lib/sctk/bin/sclite"
WORDS = ["A", "B", "AB", "BA", "IT'S", "É"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
pairs = st.lists(st.tuples(texts.filter(bool), texts), min_size=1, max_size=6)


def score_pairs(some):
    return score_texts(
        {f"u{i:05}": r for i, (r, _) in enumerate(some)}, {f"u{i:05}": h for i, (_, h) in enumerate(some)}
    )


def corrupted(references, rate, seed):
    """`references` with substitutions, deletions and insertions, about `rate` errors a word in all."""
    rng = random.Random(seed)
    vocabulary = sorted({w for text in references.values() for w in text.split()})
    hypotheses = {}
    for id, text in references.items():
        words = []
        for word in text.split():
            u = rng.random() / rate
            words += [] if u < 0.2 else [rng.choice(vocabulary)] if u < 0.8 else [word]
            words += [rng.choice(vocabulary)] if rng.random() < 0.2 * rate else []
        hypotheses[id] = " ".join(words)
    return hypotheses


@pytest.fixture(scope="module")
def an4_references(data_dir):
    files = sorted((data_dir / "an4" / "test").rglob("*.trans.txt"))
    if not files:
        pytest.skip(f"no AN4 transcripts under {data_dir}")
    return {key: value for file in files for key, value in read_text(file).items()}


@settings(max_examples=150, deadline=None)
@given(pairs)
def test_totals_equal_jiwer_and_kaldialign(some):
    references, hypotheses = zip(*some, strict=True)
    score = score_pairs(some)
    words = jiwer.process_words(list(references), list(hypotheses))
    assert score.words.errors == words.substitutions + words.insertions + words.deletions
    assert score.words.rate == pytest.approx(100 * words.wer)
    characters = jiwer.process_characters(list(references), list(hypotheses))
    assert score.characters.errors == characters.substitutions + characters.insertions + characters.deletions
    assert score.characters.rate == pytest.approx(100 * characters.cer)
    kaldi = kaldialign.batch_error_rate([r.split() for r in references], [h.split() for h in hypotheses])
    assert (score.words.errors, score.words.reference) == (kaldi["total"], kaldi["ref_len"])


@settings(max_examples=150, deadline=None)
@given(st.tuples(texts, texts))
def test_alignment_spells_both_texts_and_is_the_cheapest(pair):
    reference, hypothesis = (text.split() for text in pair)
    steps = align(reference, hypothesis)
    assert len(reference) == sum(s != "I" for s in steps)
    assert len(hypothesis) == sum(s != "D" for s in steps)
    r, h = iter(reference), iter(hypothesis)
    for step in steps:
        left = next(r) if step != "I" else None
        right = next(h) if step != "D" else None
        assert (left == right) == (step == "=")
    assert len(steps) - steps.count("=") == kaldialign.edit_distance(reference, hypothesis)["total"]
    u = score_texts({"u": pair[0]}, {"u": pair[1]}).utterances[0]
    assert (u.alignment, u.words.errors) == (steps, len(steps) - steps.count("="))


@pytest.mark.an4
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.25, 0.5])
def test_totals_and_kinds_equal_sclite_on_an4(an4_references, rate, tmp_path):
    if not Path(SCLITE).exists():
        pytest.skip("no sclite: install the Debian package sctk")
    hypotheses = corrupted(an4_references, rate, seed=round(100 * rate))
    for name, texts in (("ref", an4_references), ("hyp", hypotheses)):
        lines = [f"{text} ({id.replace('-', '_', 1)})\n" for id, text in texts.items()]
        (tmp_path / name).write_text("".join(lines))
    command = [SCLITE, "-i", "spu_id", "-r", "ref", "trn", "-h", "hyp", "trn", "-o", "rsum", "stdout"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    total = next(line for line in report.splitlines() if re.match(r" *\| Sum ", line))
    sentences, words, _, sub, deleted, inserted, errors, _ = map(int, re.findall(r"\d+", total))
    score = score_texts(an4_references, hypotheses)
    w = score.words
    assert (len(score.utterances), w.reference, w.errors) == (sentences, words, errors)
    assert errors > 0
    if rate <= 0.25:  # beyond, sclite's weights (3, 3, 4) tell some alignments apart that unit costs do not
        assert (w.substitutions, w.deletions, w.insertions) == (sub, deleted, inserted)


def test_rate_is_a_corpus_rate_not_a_mean_over_utterances():
    # complaint: WER averaged over utterances; here the average would be 50 %
    score = score_texts({"long": "A B C D E F G H I", "short": "A"}, {"long": "A B C D E F G H I", "short": "B"})
    assert score.words.rate == pytest.approx(10.0)


def test_characters_count_spaces_and_only_single_ones():
    score = score_texts({"u": "  AB \t CD "}, {"u": "AB  CD"})
    assert score.characters == Counts(5)
    assert score_texts({"u": "AB CD"}, {"u": "ABCD"}).characters == Counts(5, deletions=1)


def test_empty_references_and_hypotheses():
    score = score_texts({"silent": "", "said": "A B", "quiet": ""}, {"silent": "C D E", "said": "", "quiet": ""})
    assert score.words == Counts(2, insertions=3, deletions=2)
    assert score.words.rate == pytest.approx(250.0)
    only = score_texts({"silent": ""}, {"silent": "A"})
    assert only.words.rate == float("inf")
    assert only.to_dict()["words"]["rate"] is None
    assert score_texts({"silent": ""}, {"silent": ""}).words.rate == 0


def test_missing_and_extra_hypotheses_are_errors():
    references = {f"u{i:02}": "A" for i in range(12)}
    with pytest.raises(UserError, match=r"HYP: 11 of 12 utterances of REF have no hypothesis \(first: u00, u01, u02, "):
        score_texts(references, {"u11": "A"}, reference_name="REF", hypothesis_name="HYP")
    with pytest.raises(UserError, match=r"1 of 13 hypotheses are not in the reference \(x\)"):
        score_texts(references, references | {"x": "A"})
    with pytest.raises(UserError, match=r"11 of 12 utterances have no speaker"):
        score_texts(references, references, {"u00": "s"})
    with pytest.raises(UserError, match="holds no utterance"):
        score_texts({}, {})


def test_no_normaliser_unless_named(monkeypatch):
    assert score_texts({"u": "IT'S"}, {"u": "it's"}).words.errors == 1
    monkeypatch.setitem(NORMALISERS, "upper", lambda: str.upper)
    assert score_texts({"u": "IT'S"}, {"u": "it's"}, normaliser="upper").words.errors == 0
    with pytest.raises(UserError, match="'title'"):
        score_texts({"u": "A"}, {"u": "A"}, normaliser="title")


def test_kaldi_files(tmp_path):
    file = tmp_path / "text"
    file.write_text("u1 A  B\n\nu2\nu3\tC \r\n")
    assert read_text(file) == {"u1": "A  B", "u2": "", "u3": "C"}
    file.write_text("u1 A\nu2 B\nu1 C\n")
    with pytest.raises(UserError, match=r"line 3 has the id u1 a second time"):
        read_text(file)
    file.write_bytes(b"u1 \xff\n")
    with pytest.raises(UserError, match="not UTF-8"):
        read_text(file)
    with pytest.raises(UserError, match="no such file"):
        read_text(tmp_path / "absent")
    file.write_text("u1 s1\nu2 s 2\n")
    with pytest.raises(UserError, match="u2 has 's 2'"):
        read_utt2spk(file)


def test_score_files_read_back(tmp_path):
    score = score_texts(
        {"u2": "A B", "u1": "", "u3": "C"}, {"u2": "B", "u1": "X", "u3": "C"}, dict(u1="s", u2="s", u3="t")
    )
    write_score(score, tmp_path / "dev.json", tmp_path / "dev.tsv")
    again = read_score(tmp_path / "dev.tsv")
    assert again.utterances == score.utterances and again.set == "dev"
    totals = json.loads((tmp_path / "dev.json").read_text())
    assert totals["speakers"] == 2 and totals["utterances"] == 3
    assert totals["words"] == dict(
        reference=3, errors=2, substitutions=0, insertions=1, deletions=1, rate=pytest.approx(200 / 3)
    )
    (tmp_path / "dev.tsv").write_text((tmp_path / "dev.tsv").read_text().replace("\t2\t1\t0\t0\t1", "\t2\t7\t0\t0\t1"))
    with pytest.raises(UserError, match="line 3 is damaged"):
        read_score(tmp_path / "dev.tsv")


def test_command_prints_the_totals_and_does_not_import_torch(tmp_path):
    (tmp_path / "ref").write_text("u1 A B\nu2 C\n")
    (tmp_path / "hyp").write_text("u1 A X\nu2 C\n")
    (tmp_path / "utt2spk").write_text("u1 s1\nu2 s2\n")
    program = (
        "import sys; from geomix.cli import main; "
        "main(['score', 'ref', 'hyp', '--utt2spk', 'utt2spk', '--json', 'out.json']); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"WER +33\.33 +1 +3 +1 +0 +0", done.stdout)
    assert re.search(r"s1 +50\.00", done.stdout)
    assert json.loads((tmp_path / "out.json").read_text())["words"]["errors"] == 1


def test_command_ends_in_a_sentence(tmp_path, capsys):
    (tmp_path / "ref").write_text("u1 A B\nu2 C\n")
    (tmp_path / "hyp").write_text("u1 A X\n")
    with pytest.raises(SystemExit) as end:
        main(["score", str(tmp_path / "ref"), str(tmp_path / "hyp")])
    assert end.value.code == 1
    assert "1 of 2 utterances" in capsys.readouterr().err
