"""What `geomix init` finds in a folder, and what it chooses for it."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from geomix.errors import UserError
from geomix.models.arms import check_matched
from geomix.settings import merge, resolve
from geomix.settings.config import read_layers
from geomix.speech.corpora.forms import Form, Sounds, listen, look
from geomix.speech.first_configuration import ARMS, choose, save, written
from geomix.speech.manifest import Recording
from geomix.training.pace import Machine
from tests.conftest import ROOT

CPU, GPU = Machine("Some CPU", 1e11, (0.1, 0.6), False), Machine("Some GPU", 3e14, (0.05, 0.1), True)
BASE = read_layers(ROOT / "config.yaml")


def silence(path, seconds=1.0, rate=16_000, channels=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros((round(seconds * rate), channels)), rate)


def corpus_of(texts, hours, speakers=20):
    """A form and its sounds, without any file: `texts` dealt to speakers, `hours` in all."""
    recordings = [
        Recording(f"u{i:04d}", f"s{i % speakers:02d}", f"/nowhere/{i}.wav", t, "x") for i, t in enumerate(texts)
    ]
    seconds = {r.id: 3600 * hours / len(texts) for r in recordings}
    return Form("manifest", Path("/nowhere"), {"all": recordings}), Sounds(
        seconds, Counter({"16000 Hz, 1 channel": len(texts)})
    )


def chosen(texts, hours, machine=CPU, tmp="mine.yaml", **keys):
    form, sounds = corpus_of(texts, hours, **keys)
    return choose(form, sounds, machine, 2, Path(tmp), BASE)


# ---- forms


def test_a_kaldi_folder_whose_paths_start_above_it(tmp_path):
    data = tmp_path / "recipe/data/train"
    data.mkdir(parents=True)
    silence(tmp_path / "recipe/wavs/long.wav", 4.0)
    (data / "wav.scp").write_text("long wavs/long.wav\n")
    (data / "text").write_text("a YES\nb NO\n")
    (data / "segments").write_text("a long 0 1\nb long 1 4\n")
    form = look(data)
    assert (form.kind, form.path, form.audio_root) == ("kaldi", tmp_path / "recipe/data", tmp_path / "recipe")
    assert listen(form.recordings).seconds == {"a": 1.0, "b": 3.0}
    assert any("has no utt2spk" in line for line in form.said)
    (data / "wav.scp").write_text("long cat wavs/long.wav |\n")
    with pytest.raises(UserError, match="2 recordings are commands .* give --allow-pipes"):
        look(data)
    assert look(data, allow_pipes=True).recordings[0].command == "cat wavs/long.wav"


@pytest.mark.parametrize(
    "name, content, speakers",
    [
        (
            "metadata.csv",
            "ann_1|Raw One|one\nann_2|Raw Two|two\nbob_1|x|three\nbob_2|x|four\neve_1|x|five\neve_2|x|six\n",
            3,
        ),
        ("validated.tsv", "client_id\tpath\tsentence\nc1\tann_1.wav\tone\nc2\tbob_1.wav\tthree\n", 2),
        ("transcripts.txt", "ann_1 one\nann_2.wav two\n", 1),
        ("list.csv", 'file,text\nann_1.wav,"one, or not"\nbob_1.wav,three\n', 1),
    ],
)
def test_one_file_of_transcripts_in_the_forms_that_people_have(tmp_path, name, content, speakers):
    for stem in ("ann_1", "ann_2", "bob_1", "bob_2", "eve_1", "eve_2"):
        silence(tmp_path / f"wavs/{stem}.wav")
    (tmp_path / name).write_text(content)
    form = look(tmp_path)
    texts = {r.id: r.text for r in form.recordings}
    assert (
        form.kind is None
        and texts["wavs-ann_1"].startswith("one")
        and len({r.speaker for r in form.recordings}) == speakers
    )
    assert all(r.path.startswith(str(tmp_path / "wavs")) for r in form.recordings)


def test_a_folder_of_nothing_that_is_known(tmp_path):
    silence(tmp_path / "a.wav")
    (tmp_path / "README.txt").write_text("no transcripts here\n")
    with pytest.raises(UserError, match="is neither a Kaldi folder"):
        look(tmp_path)


def test_other_rates_are_seen_in_headers(tmp_path):
    silence(tmp_path / "a.wav", 2.0, 44_100, 2)
    sounds = listen([Recording("a", "s", str(tmp_path / "a.wav"), "YES", "x")])
    assert sounds.seconds == {"a": 2.0} and not sounds.plain and dict(sounds.forms) == {"44100 Hz, 2 channels": 1}


# ---- choices

DIGITS = ["ONE TWO THREE", "FOUR FIVE SIX", "SEVEN EIGHT NINE"] * 40
ENGLISH = [f"WORD{chr(65 + i % 26)}{chr(65 + i // 26)} OF A TEXT" for i in range(400)]


@pytest.mark.parametrize(
    "texts, hours, tokenizer",
    [
        (DIGITS, 0.1, {"kind": "word", "size": None}),
        (ENGLISH, 2.0, {"kind": "char", "size": None}),
        (ENGLISH, 50.0, {"kind": "unigram", "size": 300}),
        (["今天天气很好", "我们去公园"] * 20, 50.0, {"kind": "char", "size": None}),
        (["ฉันรักเธอ", "สวัสดี"] * 20, 50.0, {"kind": "char", "size": None}),
    ],
)
def test_the_tokenizer_follows_text_and_hours(texts, hours, tokenizer):
    assert chosen(texts, hours).sections["tokenizer"] == tokenizer


def test_the_model_follows_hours_and_machine():
    widths = {
        (hours, m.gpu): chosen(ENGLISH, hours, m).sections["model"]["width"]
        for hours in (0.1, 2, 20, 200)
        for m in (CPU, GPU)
    }
    assert [widths[hours, True] for hours in (0.1, 2, 20, 200)] == [64, 96, 144, 256]
    assert widths[200, False] == 144


@pytest.mark.parametrize("hours, machine", [(0.1, CPU), (20.0, CPU), (200.0, GPU)])
def test_all_arms_have_the_size_of_attention(hours, machine):
    first = chosen(ENGLISH, hours, machine)
    config = resolve(merge(BASE, yaml.safe_load(written(first, "geomix init"))))
    run = {**config, "arms": {name: config["arms"][name] for name in ARMS}}
    check_matched(run, 300)  # raises beyond 5 %
    assert config["gate"] is None and config["hypothesis"] == [] and not config["references"]
    assert config["comparison"]["planned"] == [] and config["study"]["tracks"] == ["own"]


def test_held_out_speakers_are_the_same_whatever_the_order_of_the_corpus():
    first, second = (chosen(texts, 0.1).sections["corpus"] for texts in (DIGITS, DIGITS[::-1]))
    assert (first["dev"], first["test"]) == (second["dev"], second["test"])
    held = {*first["dev"]["hold_out_speakers"], *first["test"]["test"]["hold_out_speakers"]}
    assert len(held) == 4  # a tenth of 20 each, apart


def test_one_speaker_is_split_by_utterance_in_tables_beside_the_configuration(tmp_path):
    form, sounds = corpus_of(DIGITS, 0.1, speakers=1)
    out = tmp_path / "mine.yaml"
    first = choose(form, sounds, CPU, 2, out, BASE)
    save(first, out, "geomix init", BASE)
    ids = {}
    for split in ("train", "dev", "test"):
        lines = (tmp_path / f"mine-tables/{split}.tsv").read_text().splitlines()
        ids[split] = {line.split("\t")[0] for line in lines[1:]}
    assert list(map(len, ids.values())) == [96, 12, 12] and len(set.union(*ids.values())) == 120
    corpus = yaml.safe_load(out.read_text())["corpus"]
    assert (corpus["kind"], corpus["train"], corpus["dev"], corpus["test"]) == (
        "manifest",
        ["train"],
        ["dev"],
        ["test"],
    )


def test_names_that_look_like_numbers_stay_text(tmp_path):
    form, sounds = corpus_of(DIGITS, 0.1)
    renamed = [Recording(r.id, r.speaker.replace("s", "00"), r.path, r.text, "x") for r in form.recordings]
    first = choose(Form("manifest", form.path, {"all": renamed}), sounds, CPU, 2, tmp_path / "1e3.yaml", BASE)
    text = written(first, "geomix init")
    assert yaml.safe_load(text)["corpus"]["name"] == "1e3" and '"00' in text
