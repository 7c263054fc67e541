"""`geomix check`: every fault of a corpus is named, by kind, with the checks of its preparation."""

import copy

import numpy as np
import pytest
import soundfile

from geomix.cli import main
from geomix.settings import load
from geomix.speech.corpora.examination import examine
from tests.conftest import ROOT
from tests.speech.corpus_builders import tone

WORDS = "YES NO GO STOP LEFT RIGHT".split()


@pytest.fixture
def tables(tmp_path):
    """Tables of three splits, 6 + 2 + 2 utterances of two speakers each, and the configuration that reads them."""
    for number, split in enumerate(("train", "dev", "test")):
        lines = []
        for i in range(6 if split == "train" else 2):
            name = f"{split}{i}"
            soundfile.write(tmp_path / f"{name}.wav", tone(1.0, 300 + 40 * i + 7 * number), 16_000)
            lines.append(f"{name}\t{split}-{i % 2}\t{name}.wav\t{WORDS[i]} {WORDS[0]}")
        write(tmp_path, split, lines)
    (tmp_path / "mine.yaml").write_text(
        f"run: mine\ncorpus: {{name: mine, kind: manifest, path: {tmp_path}, speed_factors: [1.0]}}\n"
        "tokenizer: {kind: word, size: null}\n"
    )
    return tmp_path


def write(folder, split, lines):
    (folder / f"{split}.tsv").write_text("\n".join(["id\tspeaker\tpath\ttext", *lines]) + "\n")


def config_of(folder):
    return load(ROOT / "config/smoke.yaml", folder / "mine.yaml", base=ROOT / "config.yaml")


def examined(folder, **corpus):
    config = copy.deepcopy(config_of(folder))
    config["corpus"] |= corpus
    return examine(config, config["corpus"], threads=1)


def test_a_sound_corpus_and_its_statistics(tables):
    found = examined(tables)
    assert found.faults.found == []
    train = found.splits["train"]
    assert (train.utterances, train.speakers, train.seconds, train.lengths) == (6, 2, 6.0, (1.0, 1.0, 1.0))
    assert (train.words, train.characters, train.duplicates, train.clipped) == (6, 13, 0, 0.0)
    assert train.level == pytest.approx(20 * np.log10(8000 / 32768 / np.sqrt(2)), abs=0.05)  # a tone's root mean square
    assert found.units == 6 + 3


def test_twelve_faults_are_all_named(tables, monkeypatch, capsys):
    lines = (tables / "train.tsv").read_text().splitlines()[1:]
    lines[0] = lines[0].replace("train0.wav", "nowhere.wav")
    whole = (tables / "train1.wav").read_bytes()
    (tables / "train1.wav").write_bytes(whole[: len(whole) // 2])
    soundfile.write(tables / "train2.wav", tone(1.0, rate=8000), 8000)
    soundfile.write(tables / "train3.wav", np.stack([tone(1.0)] * 2, 1), 16_000)
    soundfile.write(tables / "train4.wav", np.full(16_000, np.nan), 16_000, subtype="FLOAT")
    lines += [
        "train5\ttrain-1\ttrain5.wav\tA SECOND TIME",
        "blank\ttrain-1\ttrain5.wav\t",
        "reserved\ttrain-1\ttrain5.wav\tYES <unk>",
        "a/b\ttrain-1\ttrain5.wav\tYES",
        "four\tfields\tonly",
    ]
    write(tables, "train", lines)
    soundfile.write(tables / "test0.wav", tone(0.01), 16_000)
    dev = (tables / "dev.tsv").read_text().splitlines()[1:]
    write(tables, "dev", [*dev, lines[5]])
    with open(tables / "mine.yaml", "a") as file:
        file.write("training: {detect_after: null}\n")
    (tables / "more.yaml").write_text(
        "corpus: {expected: {test: {utterances: 3}}, test: {test: [test], held: {hold_out_speakers: [nobody]}}}\n"
    )
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as status:
        main(["check", "config/smoke.yaml", str(tables / "mine.yaml"), str(tables / "more.yaml")])
    assert status.value.code == 1
    out, err = capsys.readouterr()
    kinds = {line.removeprefix("fault: ").rsplit(":", 1)[0] for line in out.splitlines() if line.startswith("fault: ")}
    assert kinds == {
        "missing recording",
        "damaged recording",
        "another sample rate",
        "several channels",
        "sample that is no number",
        "id twice",
        "empty transcript",
        "symbol that no tokenizer gives back",
        "unfit id or speaker",
        "bad line",
        "too short for a frame",
        "utterance of train in another split",
        "counts that differ",
        "speaker who is not there",
    }
    assert "faults of 14 kinds stop the study" in err and "prepared" not in out


def test_what_stops_nothing_is_warned_of(tables):
    soundfile.write(tables / "train0.wav", np.zeros(16_000), 16_000)
    loud = np.clip(5.0 * tone(1.0) / 32_768, -1, 1)
    soundfile.write(tables / "train1.wav", loud, 16_000)
    soundfile.write(tables / "test1.wav", loud, 16_000)
    soundfile.write(tables / "train2.wav", tone(0.05), 16_000)
    write(tables, "dev", ["dev0\tdev-0\tdev0.wav\tMAYBE", "dev1\tdev-1\tdev1.wav\tYES"])
    found = examined(tables)
    assert not found.faults.kinds(stops=True)
    assert set(found.faults.kinds(stops=False)) == {
        "silence",
        "clipping",
        "equal recordings across splits",
        "shorter than the bounds",
        "words outside the tokenizer",
    }
    assert found.splits["dev"].unknown == {"MAYBE": 1}
    assert found.splits["train"].clipped > 0.05


def test_a_tokenizer_that_does_not_fit_is_a_fault(tables):
    config = copy.deepcopy(config_of(tables))
    config["tokenizer"] = {"kind": "unigram", "size": 500}
    faults = examine(config, config["corpus"], threads=1).faults.kinds(stops=True)
    assert list(faults) == ["tokenizer that does not fit the text"] and "lower the size" in faults.popitem()[1][0]
