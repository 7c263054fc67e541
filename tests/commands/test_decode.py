"""`geomix decode` and `geomix compare`: sets in every form, several arms and seeds, and the study's comparison."""

import json
import shutil

import numpy as np
import pytest
import soundfile
import torch

from geomix.cli import main
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.saved import save_model
from geomix.speech.comparison import compare_systems
from geomix.speech.scoring import read_score
from geomix.speech.tokenizer import Tokenizer, train_tokenizer

TEXTS = {f"s{n % 5}-1-{n:04d}": text for n, text in enumerate(["ONE TWO", "SIX", "TWO FOUR", "FIVE", "SIX TWO"] * 2)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Models of two arms, and one set as a Kaldi folder, in LibriSpeech's layout, as a table and as recordings with a text."""
    root = tmp_path_factory.mktemp("decode")
    for arm, seed in (("plain", 0), ("plain", 1), ("pair", 0), ("pair", 7)):
        folder = root / "run" / arm / f"seed{seed}"
        train_tokenizer(["ONE TWO THREE FOUR FIVE SIX"], folder, "word")
        torch.manual_seed(seed + 10 * (arm == "pair"))
        mixer = {"mixer": "none"} if arm == "plain" else {"mixer": "pair", "rank": 4, "offsets": [1, 2]}
        config = ConformerConfig(
            vocab=Tokenizer.load(folder).size, blocks=1, width=8, ff_dim=8, kernel=3, heads=2, mixer=mixer
        )
        network = ConformerCTC(config)
        network.set_normalisation(np.full(80, -10.0), np.full(80, 3.0))
        torch.nn.init.normal_(network.ctc.weight, std=3.0)
        save_model(network, folder)
    generator = np.random.default_rng(0)
    for name in ("kaldi/set", "free"):
        (root / name).mkdir(parents=True)
    tables = {name: [] for name in ("wav.scp", "text", "utt2spk")}
    rows = ["id\tspeaker\tpath\ttext"]
    for n, (i, text) in enumerate(TEXTS.items()):
        speaker = i.split("-")[0]
        place = root / "libri/set" / speaker / "1"
        place.mkdir(parents=True, exist_ok=True)
        soundfile.write(place / f"{i}.flac", 0.1 * generator.normal(size=9000 + 3000 * n), 16_000)
        shutil.copy(place / f"{i}.flac", root / "free")
        with open(place / f"{speaker}-1.trans.txt", "a") as listing:
            listing.write(f"{i} {text}\n")
        for name, value in (("wav.scp", place / f"{i}.flac"), ("text", text), ("utt2spk", speaker)):
            tables[name].append(f"{i} {value}\n")
        rows.append(f"{i}\t{speaker}\tlibri/set/{speaker}/1/{i}.flac\t{text}")
    for name, lines in tables.items():
        (root / "kaldi/set" / name).write_text("".join(lines))
    (root / "set.tsv").write_text("\n".join(rows) + "\n")
    return root


def decode(*arguments):
    main(["decode", *map(str, arguments), "--device", "cpu", "--resamples", "200"])


def test_a_set_in_any_form_gives_the_same_scores(root, tmp_path):
    model = root / "run/plain/seed1"
    free = ("--reference", root / "kaldi/set/text", "--utt2spk", root / "kaldi/set/utt2spk")
    forms = {"kaldi": [root / "kaldi/set"], "libri": [root / "libri/set"], "table": [root / "set.tsv"]}
    found = {}
    for name, arguments in {**forms, "free": [root / "free", *free]}.items():
        decode(model, *arguments, "--out", tmp_path / name)
        (tsv,) = (tmp_path / name / "plain/seed1/score").glob("*.tsv")
        assert {u.id: u.speaker for u in read_score(tsv).utterances} == {i: i.split("-")[0] for i in TEXTS}
        found[name] = tsv.read_bytes()
    assert len(found) == 4 and len(set(found.values())) == 1


def test_arms_are_compared_over_their_seeds_as_a_study_compares_them(root, tmp_path, capsys):
    models = [root / "run" / place for place in ("plain/seed0", "plain/seed1", "pair/seed0", "pair/seed7")]
    decode(*models, root / "kaldi/set", "--out", tmp_path)
    out = capsys.readouterr().out
    scores = {
        arm: {s: read_score(tmp_path / arm / f"seed{s}/score/set.tsv") for s in seeds}
        for arm, seeds in (("plain", (0, 1)), ("pair", (0, 7)))
    }
    expected = compare_systems(scores["pair"], scores["plain"], ("pair", "plain"), resamples=200, seed=0)
    (entry,) = json.loads((tmp_path / "comparisons.json").read_text())
    assert entry == {"set": "set", "a": "pair", "b": "plain", "planned": False, "holm_p": None, **expected}
    assert f"pair - plain = {expected['difference']:+.2f} points: " in out
    for arm, of_seed in scores.items():
        for seed, score in of_seed.items():
            assert f"{arm:<16} {seed:>4} {score.words.rate:>8.2f}" in out

    # the same from the hypotheses alone
    texts = [[tmp_path / arm / f"seed{s}/hyp/set/text" for s in of_seed] for arm, of_seed in scores.items()]
    main([
        "compare", str(root / "kaldi/set/text"), *map(str, texts[1]), "--against", *map(str, texts[0]),
        "--utt2spk", str(root / "kaldi/set/utt2spk"), "--resamples", "200", "--json", str(tmp_path / "found.json"),
    ])  # fmt: skip
    found = json.loads((tmp_path / "found.json").read_text())
    assert [found.pop(key) for key in "ab"] == [list(map(str, texts[1])), list(map(str, texts[0]))]
    for key in ("difference", "t_low", "t_high", "verdict", "seeds_a", "seeds_b", "low", "high"):
        assert found[key] == expected[key]
    out = capsys.readouterr().out
    assert "A  mean" in out and "t over speakers and seeds" in out and "(trainings 1 and 1)" in out


def test_long_forms_are_scored_and_compared_length_by_length(root, tmp_path, capsys):
    models = [root / "run" / place for place in ("plain/seed0", "pair/seed0")]
    decode(*models, root / "set.tsv", "--out", tmp_path, "--long-form", "2", "1")
    assert [e["set"] for e in json.loads((tmp_path / "comparisons.json").read_text())] == ["set-1s", "set-2s"]
    out = capsys.readouterr().out
    assert out.index("set-1s: ") < out.index("set-2s: ") and out.count("real time  peak MB") == 2
    words = [read_score(tmp_path / f"plain/seed0/score/set-{s}s.tsv").words.reference for s in (1, 2)]
    assert 0 < words[1] <= words[0] <= sum(len(text.split()) for text in TEXTS.values())


def test_beam_search_is_a_second_set_of_hypotheses_beside_the_greedy_ones(root, tmp_path):
    """A language model that knows one word keeps others from being said."""
    (tmp_path / "lm.arpa").write_text("\\1-grams:\n-99 <s>\n-1 </s>\n-0.1 SIX\n-60 <unk>\n\\end\\\n")
    decode(
        root / "run/pair/seed0",
        root / "set.tsv",
        "--out",
        tmp_path / "lm",
        "--lm",
        tmp_path / "lm.arpa",
        "--lm-weight",
        9,
    )
    decode(root / "run/pair/seed0", root / "set.tsv", "--out", tmp_path / "greedy")
    text = "seed0/hyp/set/text"
    assert (tmp_path / "lm/pair" / text).read_bytes() == (tmp_path / "greedy/pair" / text).read_bytes()
    strange = lambda arm: (tmp_path / "lm" / arm / text).read_text().replace("SIX", "").split()
    assert len(strange("pair+lm")) < len(strange("pair"))
    (entry,) = json.loads((tmp_path / "lm/comparisons.json").read_text())
    assert (entry["a"], entry["b"], entry["planned"]) == ("pair+lm", "pair", False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run/plain/seed0", "x=run/absent", "kaldi/set"], "run/absent: no such folder: give the folder of a trained"),
        (
            ["run/plain/seed0", "run/plain/seed0", "kaldi/set"],
            "are both plain, seed 0: call one of them otherwise, other/",
        ),
        (["run/plain/seed0", "free"], "free: neither a manifest (.tsv) nor a folder with wav.scp"),
        (["run/plain/seed0", "absent"], "absent: no such set: give a manifest"),
        (["run/plain/seed0", "free", "--utt2spk", "kaldi/set/utt2spk"], "has no --reference beside it"),
        (["run/plain/seed0", "free", "--reference", "few"], "free: 9 of its recordings have no text in few"),
        (["run/plain/seed0", "free", "--reference", "more"], "more: 1 of its utterances have no recording in"),
    ],
)
def test_mistakes_are_told_in_a_sentence_and_write_nothing(root, tmp_path, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(root)
    (root / "few").write_text("s0-1-0000 ONE TWO\n")
    (root / "more").write_text("".join(f"{i} {text}\n" for i, text in {**TEXTS, "other": "ONE"}.items()))
    with pytest.raises(SystemExit) as ended:
        decode(*arguments, "--out", tmp_path / "out")
    error = capsys.readouterr().err
    assert ended.value.code == 1 and sentence in " ".join(error.split()) and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_a_seed_of_another_arm_is_named_on_the_command_line(root, tmp_path):
    model = root / "run/plain/seed0"
    decode(model, f"other/seed3={model}", f"third={model}", root / "set.tsv", "--out", tmp_path)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("*/*")) == [
        "other/seed3", "plain/seed0", "third/seed0",
    ]  # fmt: skip
    entries = json.loads((tmp_path / "comparisons.json").read_text())
    assert [(e["a"], e["b"], e["difference"]) for e in entries] == [
        ("other", "plain", 0), ("third", "plain", 0), ("third", "other", 0),
    ]  # fmt: skip
