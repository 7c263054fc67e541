import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from geomix.errors import UserError
from geomix.speech.corpora import (
    check_corpus,
    demo,
    demo_grammar,
    generate_corpus,
    librispeech,
    prepare_split,
    smoke,
    stale_sources,
)
from geomix.speech.manifest import read_manifest

from .corpus_builders import prepare_corpus, tone, write_folder

BOUNDS = {"speed_factors": [1.0], "min_seconds": 0.1, "max_seconds": 30.0}
TEXTS = {
    "ann-1-0000": "ONE TWO",
    "ann-1-0001": "THREE",
    "bob-1-0000": 'FOUR "FIVE',
    "bob-2-0000": "SIX",
    "cat-1-0000": "IT'S SEVEN",
}


@pytest.fixture
def corpus(tmp_path):
    """A corpus config over three small splits."""
    root = tmp_path / "corpus"
    write_folder(root / "train", TEXTS)
    write_folder(root / "dev", {"dan-1-0000": "ONE"})
    write_folder(root / "test", {"eve-1-0000": "TWO SIX"})
    return {"name": "own", "kind": "folder", "path": str(root), "train": ["train"], "dev": ["dev"], "test": ["test"]}


def refused(corpus, tmp_path, *parts):
    """The preparation ends in one sentence that has all `parts`, and leaves no summary."""
    with pytest.raises(UserError) as error:
        prepare_corpus(corpus, tmp_path / "out")
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)
    assert not (tmp_path / "out" / "corpus.json").exists()


# ---- preparation


def test_preparation_writes_manifests_and_summary(corpus, tmp_path, capsys):
    """espnet#6418: speed perturbation was off and nobody saw; the histogram and the 3.02 are printed and recorded."""
    content = prepare_corpus(corpus, tmp_path / "out", speed_factors=(0.9, 1.0, 1.1))
    assert json.loads((tmp_path / "out" / "corpus.json").read_text()) == content
    train = read_manifest(tmp_path / "out" / "manifest" / "train.tsv")
    assert [u.id for u in train] == sorted(prefix + i for prefix in ("", "sp0.9-", "sp1.1-") for i in TEXTS)
    assert {u.id: u.text for u in train}["sp1.1-bob-1-0000"] == 'FOUR "FIVE'
    assert {(u.speed, u.samples) for u in train} == {(0.9, 8_889), (1.0, 8_000), (1.1, 7_273)}
    assert content["splits"]["train"]["speed_histogram"] == {"0.9": 5, "1.0": 5, "1.1": 5}
    assert content["splits"]["train"]["speakers"] == 3
    assert content["speed_ratio"] == pytest.approx(1 / 0.9 + 1 + 1 / 1.1, abs=1e-3)
    printed = capsys.readouterr().err
    assert "5 at speed 0.9, 5 at speed 1.0, 5 at speed 1.1" in printed and "3.02 x" in printed
    for split in ("dev", "test"):
        assert content["splits"][split]["speed_histogram"] == {"1.0": 1}


def test_hashes_do_not_depend_on_where_the_corpus_lies(corpus, tmp_path):
    first = prepare_corpus(corpus, tmp_path / "out")
    shutil.move(corpus["path"], tmp_path / "moved")
    second = prepare_corpus({**corpus, "path": str(tmp_path / "moved")}, tmp_path / "out2")
    assert first == second


def test_long_and_short_utterances_are_dropped_after_perturbation_and_named(corpus, tmp_path, capsys):
    write_folder(Path(corpus["path"]) / "train", {"zoe-1-0000": "LONG"}, seconds=28.0)
    write_folder(Path(corpus["path"]) / "train", {"zoe-2-0000": "SHORT"}, seconds=0.105)
    write_folder(Path(corpus["path"]) / "test", {"zac-1-0000": "LONG"}, seconds=31.0)
    content = prepare_corpus(corpus, tmp_path / "out", speed_factors=(0.9, 1.0, 1.1))
    assert content["dropped"]["train"] == {"too_long": ["sp0.9-zoe-1-0000"], "too_short": ["sp1.1-zoe-2-0000"]}
    assert "sp0.9-zoe-1-0000" in capsys.readouterr().err
    assert content["splits"]["train"]["speed_histogram"] == {"0.9": 6, "1.0": 7, "1.1": 6}
    assert content["splits"]["test"]["utterances"] == 2, "a test set stays whole"


def test_held_out_speakers_leave_the_training_set(corpus, tmp_path):
    corpus |= {
        "dev": {"hold_out_speakers": ["bob"]},
        "test": {"test": ["test"], "other": {"hold_out_speakers": ["cat"]}},
    }
    prepare_corpus(corpus, tmp_path / "out", speed_factors=(1.0, 1.1))
    speakers = {
        path.stem: sorted({u.speaker for u in read_manifest(path)}) for path in (tmp_path / "out/manifest").iterdir()
    }
    assert speakers == {"train": ["ann"], "dev": ["bob"], "test": ["eve"], "other": ["cat"]}
    refused({**corpus, "dev": {"hold_out_speakers": ["bo"]}}, tmp_path / "a", "dev holds out bo")
    refused({**corpus, "dev": {"hold_out_speakers": ["cat"]}}, tmp_path / "b", "cat is held out twice")


def test_expected_counts_are_asserted(corpus, tmp_path):
    prepare_corpus({**corpus, "expected": {"train": {"utterances": 5, "speakers": 3}}}, tmp_path / "right")
    refused({**corpus, "expected": {"train": {"speakers": 4}}}, tmp_path, "train has 3 speakers instead of 4")


def test_preparation_needs_no_torch(corpus, tmp_path):
    code = (
        "import json, sys; from geomix.speech.corpora import check_corpus, prepare_split;"
        "assert 'numpy' not in sys.modules;"  # `geomix status` looks at sources alone
        "corpus, out = json.loads(sys.argv[1]), sys.argv[2];"
        "folders = {split: f'{out}/{split}' for split in ('train', 'dev', 'test')};"
        "[prepare_split(corpus, split, folder) for split, folder in folders.items()];"
        "check_corpus(corpus, folders, f'{out}/corpus.json'); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, json.dumps({**corpus, **BOUNDS}), str(tmp_path / "out")], check=True)


# ---- bad data, a sentence each


def train(corpus):
    return Path(corpus["path"]) / "train"


def test_transcript_without_audio(corpus, tmp_path):
    (train(corpus) / "bob/2/bob-2-0000.flac").unlink()
    refused(corpus, tmp_path, "bob-2.trans.txt", "bob-2-0000 has a transcript and no bob-2-0000.flac")


def test_audio_without_transcript(corpus, tmp_path):
    (train(corpus) / "ann/1/ann-1.trans.txt").write_text("ann-1-0000 ONE TWO\n")
    refused(corpus, tmp_path, "ann-1-0001.flac", "add its transcript or remove the file")


def test_empty_transcript(corpus, tmp_path):
    (train(corpus) / "bob/2/bob-2.trans.txt").write_text("bob-2-0000 \n")
    refused(corpus, tmp_path, "bob-2.trans.txt", "the transcript of bob-2-0000 is empty")


def test_second_transcript(corpus, tmp_path):
    with open(train(corpus) / "bob/2/bob-2.trans.txt", "a") as listing:
        listing.write("bob-2-0000 SIX AGAIN\n")
    refused(corpus, tmp_path, "bob-2.trans.txt", "bob-2-0000 has a second transcript")


def test_one_id_in_two_folders(corpus, tmp_path):
    shutil.copytree(train(corpus) / "bob/2", train(corpus) / "bob/3")
    refused(corpus, tmp_path, "bob/3/bob-2-0000.flac", "make each id unique")


def test_one_id_in_two_splits(corpus, tmp_path):
    write_folder(Path(corpus["path"]) / "test", {"bob-2-0000": "SIX"})
    refused(corpus, tmp_path, "id bob-2-0000 is also that of")


def test_a_training_recording_that_is_tested(corpus, tmp_path):
    refused(
        {**corpus, "test": ["dev", "test"], "train": ["train", "test"]}, tmp_path, "eve-1-0000 is in train and in test"
    )


def test_truncated_flac_fails_the_preparation(corpus, tmp_path):
    path = train(corpus) / "bob/2/bob-2-0000.flac"
    path.write_bytes(path.read_bytes()[:4_000])
    refused(corpus, tmp_path, str(path), "copy it again")


def test_wrong_rate_and_stereo_fail_the_preparation(corpus, tmp_path):
    path = train(corpus) / "bob/2/bob-2-0000.flac"
    soundfile.write(path, tone(0.5), 8_000)
    refused(corpus, tmp_path, str(path), "8000 Hz")
    soundfile.write(path, np.stack([tone(0.5)] * 2, 1), 16_000)
    refused(corpus, tmp_path, str(path), "2 channels")


def test_missing_splits_kinds_and_names(corpus, tmp_path):
    refused({**corpus, "train": ["training"]}, tmp_path, "training: no such folder")
    refused({**corpus, "kind": "folders"}, tmp_path, "kind 'folders' is not one of")
    refused({**corpus, "test": ["train"]}, tmp_path, "a test set is called train")
    (Path(corpus["path"]) / "empty").mkdir()
    refused({**corpus, "dev": ["empty"]}, tmp_path, "split empty has no utterance")


def test_transcript_that_is_not_utf8(corpus, tmp_path):
    (train(corpus) / "bob/2/bob-2.trans.txt").write_bytes(b"bob-2-0000 \xff\xfe\n")
    refused(corpus, tmp_path, "bob-2.trans.txt: byte 11 is not UTF-8")


# ---- one job for each split


def prepared(corpus, tmp_path, *splits):
    """The splits' folders, as `check_corpus` takes them."""
    folders = {split: tmp_path / "data" / f"{split}-0" for split in splits}
    for split, folder in folders.items():
        prepare_split({**corpus, **BOUNDS}, split, folder, threads=1)
    return folders


def test_a_split_is_prepared_alone(corpus, tmp_path):
    """The others may be absent: a new test set touches nothing of train and dev."""
    folders = prepared(corpus, tmp_path, "train", "dev", "test")
    for split in ("train", "dev", "test"):
        others = {**corpus, **{other: ["none"] for other in ("train", "dev", "test") if other != split}}
        again = tmp_path / "again" / split
        prepare_split({**others, **BOUNDS, "test": [*others["test"], "more"]}, split, again, threads=1)
        names = {f"manifest/{split}.tsv", "sources.tsv", "split.json"}
        assert set(hashes(again)) == names
        for name in names:
            assert (again / name).read_bytes() == (folders[split] / name).read_bytes()


def test_the_summary_of_a_split(corpus, tmp_path):
    corpus |= {"train": ["train", "dev"], "dev": {"hold_out_speakers": ["bob"]}, "speed_factors": [1.0, 0.9]}
    prepare_split({**BOUNDS, **corpus}, "train", tmp_path / "train")
    found = json.loads((tmp_path / "train" / "split.json").read_text())
    assert len(found.pop("hash")) == 64
    assert found == {
        "corpus": "own",
        "kind": "folder",
        "split": "train",
        "utterances": 8,
        "speakers": 3,
        "words": 2 * (2 + 1 + 2 + 1),
        "characters": 2 * len("ONE TWO" + "THREE" + "IT'S SEVEN" + "ONE"),
        "seconds": (4 * 8_000 + 4 * 8_889) / 16_000,
        "speed_histogram": {"0.9": 4, "1.0": 4},
        "dropped": {"too_long": [], "too_short": []},
        "original_seconds": 2.0,
        "sources": {
            "train": {"utterances": 5, "speakers": 3, "words": 8, "characters": 7 + 5 + 10 + 3 + 10},
            "dev": {"utterances": 1, "speakers": 1, "words": 1, "characters": 3},
        },
    }


def test_speakers_held_out_by_any_split_leave_train_alone(corpus, tmp_path):
    corpus |= {"dev": ["dev"], "test": {"test": ["test"], "other": {"hold_out_speakers": ["cat"]}}}
    folders = prepared(corpus, tmp_path, "train", "dev", "other")
    speakers = {
        split: {u.speaker for u in read_manifest(folder / f"manifest/{split}.tsv")} for split, folder in folders.items()
    }
    assert speakers == {"train": {"ann", "bob"}, "dev": {"dan"}, "other": {"cat"}}
    read = {Path(line.split("\t")[0]).name for line in (folders["other"] / "sources.tsv").read_text().splitlines()}
    assert read == {"cat-1-0000.flac", "ann-1.trans.txt", "bob-1.trans.txt", "bob-2.trans.txt", "cat-1.trans.txt"}
    with pytest.raises(UserError, match="has no split extra: give one of train, dev, test, other"):
        prepare_split({**corpus, **BOUNDS}, "extra", tmp_path / "extra")


def test_sources_that_changed_since_are_told(corpus, kaldi, tables, tmp_path):
    for number, one in enumerate((corpus, kaldi, tables)):
        folder = prepared(one, tmp_path / str(number), "train")["train"]
        assert stale_sources(folder) == []
        sources = [Path(line.split("\t")[0]) for line in (folder / "sources.tsv").read_text().splitlines()]
        assert sources == sorted(sources, key=str) and all(path.is_absolute() for path in sources)
        assert len([path for path in sources if path.suffix == ".flac"]) == 5
        for path in sources:
            content, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
            path.unlink()
            assert stale_sources(folder) == [f"{path}: cannot be found any more (No such file or directory)"]
            path.write_bytes(content + b"\n")
            (sentence,) = stale_sources(folder)
            assert f"{path}: has {len(content) + 1} bytes, {len(content)} when" in sentence
            path.write_bytes(content)
            os.utime(path, ns=(times[0], times[1] + 1_000_000_000))
            (sentence,) = stale_sources(folder)
            assert f"{path}: was changed" in sentence
            os.utime(path, ns=times)
        assert stale_sources(folder) == []


def test_the_check_of_a_corpus_reads_no_audio(corpus, tmp_path):
    folders = prepared(corpus, tmp_path, "train", "dev", "test")
    shutil.rmtree(corpus["path"])
    content = check_corpus({**corpus, **BOUNDS}, folders, tmp_path / "corpus.json")
    assert content == json.loads((tmp_path / "corpus.json").read_text())
    assert set(content["splits"]) == {"train", "dev", "test"}
    with pytest.raises(UserError, match="train has 3 speakers instead of 4"):
        check_corpus({**corpus, **BOUNDS, "expected": {"train": {"speakers": 4}}}, folders, tmp_path / "none.json")
    with pytest.raises(UserError, match="split more is not prepared"):
        check_corpus({**corpus, **BOUNDS, "test": ["test", "more"]}, folders, tmp_path / "none.json")
    with pytest.raises(UserError, match=r"split\.json: is of the split test, not of dev"):
        check_corpus({**corpus, **BOUNDS}, {**folders, "dev": folders["test"]}, tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_an_utterance_that_train_dropped_is_still_of_train(corpus, tmp_path):
    write_folder(Path(corpus["path"]) / "train", {"zoe-1-0000": "LONG"}, seconds=31.0)
    refused({**corpus, "train": ["train"], "test": {"test": ["train"]}}, tmp_path, "is in train and in test")


def test_a_dev_set_that_is_also_tested_is_prepared_once(corpus, tmp_path):
    content = prepare_corpus({**corpus, "test": ["dev", "test"]}, tmp_path / "out")
    assert content["splits"]["dev"]["utterances"] == 1


# ---- data are checked where they enter: a sentence with file or id


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("symbol", ["<unk>", "<s>", "</s>", "<blank>", "<sos/eos>", "\u2581", "\0", "\x1b"])
def test_a_reserved_symbol_in_a_transcript_is_refused_by_id(corpus, tmp_path, split, symbol):
    (listing,) = sorted((Path(corpus["path"]) / split).rglob("*.trans.txt"))[:1]
    utterance_id = listing.read_text().split()[0]
    listing.write_text(listing.read_text().replace(f"{utterance_id} ", f"{utterance_id} A{symbol} "))
    refused(corpus, tmp_path, f"{listing}: the transcript of {utterance_id} holds", "write what is said instead")


def test_ids_and_speakers_that_no_table_can_carry_are_refused(corpus, kaldi, tables, tmp_path):
    table = Path(tables["path"]) / "train.tsv"
    content = table.read_text()
    for name, why in (("ann 1", "white space"), ("ann/1", "'/'"), ("ann\u200b", "U+200B"), ("", "is empty")):
        table.write_text(content.replace("\tann-1-0000\t", f"\t{name}\t"))
        refused(tables, tmp_path, f"{table}: the id {name!r}", why, "rename it")
        table.write_text(content.replace("\tann\t", f"\t{name}\t"))
        refused(tables, tmp_path, f"{table}: the speaker {name!r} of ann-1-0000", why, "rename the speaker")
    data = Path(kaldi["path"]) / "train"
    (data / "utt2spk").write_text((data / "utt2spk").read_text().replace(" ann", " ann lee"))
    refused(kaldi, tmp_path, "the speaker 'ann lee' of ann-1-0000 has white space")
    (train(corpus) / "cat").rename(train(corpus) / "cat lee")
    refused(corpus, tmp_path, "the speaker 'cat lee' of cat-1-0000 has white space")


def test_a_byte_order_mark_is_skipped_in_every_form_of_corpus(corpus, kaldi, tables, tmp_path):
    plain = prepare_corpus({**corpus}, tmp_path / "plain")["splits"]
    for path in [*Path(corpus["path"]).rglob("*.t[rs]*"), *(p for p in Path(kaldi["path"]).rglob("*") if p.is_file())]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    for number, one in enumerate((corpus, tables)):
        assert prepare_corpus(one, tmp_path / str(number))["splits"] == plain
    assert prepare_corpus(kaldi, tmp_path / "kaldi")["splits"]["train"]["words"] == plain["train"]["words"]


@pytest.mark.parametrize("samples", [1, 200, 256])
def test_recordings_without_a_feature_frame_are_dropped_or_refused_by_id(corpus, tmp_path, capsys, samples):
    """257 samples have two frames, 256 none: of train and dev they are dropped, of a test set refused."""
    for split, utterance_id in (("train", "zoe-1-0000"), ("dev", "zac-1-0000"), ("test", "yan-1-0000")):
        write_folder(Path(corpus["path"]) / split, {utterance_id: "SHORT"}, seconds=samples / 16_000)
        write_folder(Path(corpus["path"]) / split, {f"{utterance_id[:-1]}1": "SHORT"}, seconds=257 / 16_000)
    for split, utterance_id in (("train", "zoe-1-0000"), ("dev", "zac-1-0000")):
        prepare_split({**corpus, **BOUNDS, "min_seconds": 0}, split, tmp_path / split)
        found = json.loads((tmp_path / split / "split.json").read_text())
        assert found["dropped"] == {"too_long": [], "too_short": [utterance_id]}
        assert utterance_id in capsys.readouterr().err
    refused(corpus, tmp_path, "yan-1-0000.flac", f"utterance yan-1-0000 has {samples} samples", "at least 257")


@pytest.mark.parametrize("fault", ["truncated", "nan", "infinite"])
def test_a_bad_recording_of_a_users_own_is_found_in_preparation(tables, tmp_path, fault):
    wav = Path(tables["path"]) / "own.wav"
    samples = np.full(16_000, 0.1, np.float32)
    samples[8_000] = {"nan": np.nan, "infinite": np.inf}.get(fault, 0)
    soundfile.write(wav, samples, 16_000, subtype="FLOAT")
    if fault == "truncated":
        wav.write_bytes(wav.read_bytes()[:30_000])
    with open(Path(tables["path"]) / "test.tsv", "a") as table:
        table.write("A\t1\town-1\tsid\town.wav\n")
    refused(tables, tmp_path, f"{wav}: ", "in its header" if fault == "truncated" else "sample 8000 (at 0.5000 s)")


def test_replaced_float_audio_changes_the_hash(tables, tmp_path):
    wav, draw, found = Path(tables["path"]) / "own.wav", np.random.default_rng(0), set()
    with open(Path(tables["path"]) / "dev.tsv", "a") as table:
        table.write("A\t1\town-1\tsid\town.wav\n")
    for number in range(2):
        soundfile.write(wav, 0.1 * draw.standard_normal(16_000), 16_000, subtype="FLOAT")
        found.add(prepare_corpus(tables, tmp_path / str(number))["splits"]["dev"]["hash"])
    assert len(found) == 2


# ---- published corpora


@pytest.mark.an4
def test_an4(data_dir, tmp_path):
    """Counts of data/README.md; dev is two whole training speakers."""
    corpus = {"name": "an4", "kind": "folder", "path": str(data_dir / "an4"), "train": ["train"], "test": ["test"]}
    content = prepare_corpus({**corpus, "dev": {"hold_out_speakers": ["mkem", "fbbh"]}}, tmp_path)
    split = content["splits"]
    assert split["train"]["utterances"] + split["dev"]["utterances"] == 948
    assert (split["train"]["speakers"], split["dev"]["speakers"], split["test"]["speakers"]) == (72, 2, 10)
    assert (split["test"]["utterances"], split["test"]["words"]) == (130, 773)
    assert round(split["train"]["seconds"] + split["dev"]["seconds"]) == 2546
    assert round(split["test"]["seconds"]) == 357
    with pytest.raises(UserError, match="test has 130 utterances instead of 948"):
        prepare_corpus(
            {**corpus, "train": ["test"], "dev": ["test"], "expected": {"test": {"utterances": 948}}}, tmp_path
        )


@pytest.mark.fixture
def test_librispeech_fixture(data_dir, tmp_path):
    corpus = {
        "name": "fixture",
        "kind": "librispeech",
        "path": str(data_dir / "librispeech_fixture"),
        "train": ["train-clean-5"],
        "dev": {"hold_out_speakers": ["118"]},
        "test": {"held-out": {"hold_out_speakers": ["1737", "669"]}},
        "expected": {"train-clean-5": {"utterances": 60, "speakers": 12}},
    }
    split = prepare_corpus(corpus, tmp_path)["splits"]
    assert {name: found["utterances"] for name, found in split.items()} == {"train": 45, "dev": 5, "held-out": 10}
    assert sum(found["seconds"] for found in split.values()) == pytest.approx(199.5, abs=0.1)


def test_a_published_subset_must_be_complete(tmp_path):
    """lhotse#977, espnet#2730: utterances went missing in silence; clean-100 has 28,539 of 251 speakers."""
    for subset in librispeech.published("any"):
        write_folder(tmp_path / subset, {f"{len(subset)}-1-000{i}": "A" for i, _ in enumerate(subset[:1])})
    corpus = {"name": "ls", "kind": "librispeech", "path": str(tmp_path), "dev": ["dev-clean"], "test": ["test-other"]}
    refused({**corpus, "train": ["train-clean-100"]}, tmp_path, "train-clean-100 has 1 utterances instead of 28539")
    cut = {"utterances": 1}
    expected = {"train-clean-100": cut, "dev-clean": cut}
    refused(
        {**corpus, "train": ["train-clean-100"], "expected": expected}, tmp_path, "test-other has 1 utterances instead"
    )


def test_published_counts_are_those_of_the_reference():
    assert librispeech.published("any") == {
        "train-clean-100": {"utterances": 28539, "speakers": 251},
        "dev-clean": {"utterances": 2703, "speakers": 40, "words": 54402, "characters": 288456},
        "dev-other": {"utterances": 2864, "speakers": 33, "words": 50948, "characters": 265951},
        "test-clean": {"utterances": 2620, "speakers": 40, "words": 52576, "characters": 281530},
        "test-other": {"utterances": 2939, "speakers": 33, "words": 52343, "characters": 272758},
    }


# ---- download


@pytest.fixture
def mirror(tmp_path):
    """A server of dev-clean.tar.gz that understands byte ranges and breaks off after `limit` bytes when told so."""
    write_folder(tmp_path / "made" / "LibriSpeech" / "dev-clean", TEXTS)
    archive = tmp_path / "made" / "dev-clean.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "made" / "LibriSpeech", "LibriSpeech")
    content = archive.read_bytes()

    class Handler(BaseHTTPRequestHandler):
        limit = None
        asked: list = []

        def do_GET(self):
            start = int(re.findall(r"\d+", self.headers.get("Range", "bytes=0-"))[0])
            self.asked.append(start)
            if not self.path.endswith("/dev-clean.tar.gz"):
                self.send_error(404)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : self.limit])

        def log_message(self, form, *arguments):
            logging.debug(form, *arguments)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", hashlib.sha256(content).hexdigest(), Handler
    server.shutdown()


def test_a_download_that_broke_off_is_continued(mirror, tmp_path):
    url, sha256, handler = mirror
    handler.limit = 5_000
    with pytest.raises(UserError, match="run it again, it continues"):
        librispeech.download("dev-clean", tmp_path / "LibriSpeech", url, sha256)
    assert not (tmp_path / "LibriSpeech" / "dev-clean").exists()
    handler.limit = None
    folder = librispeech.download("dev-clean", tmp_path / "LibriSpeech", url, sha256)
    assert handler.asked[-2:] == [0, 5_000]
    assert sorted(path.stem for path in folder.rglob("*.flac")) == sorted(TEXTS)
    assert os.listdir(tmp_path / "LibriSpeech") == ["dev-clean"], "archive and unfinished files are gone"
    requests = len(handler.asked)
    librispeech.download("dev-clean", tmp_path / "LibriSpeech", url, sha256)
    assert len(handler.asked) == requests, "what is there is not fetched again"


def test_a_wrong_archive_is_refused_and_removed(mirror, tmp_path):
    url, _, _ = mirror
    with pytest.raises(UserError, match="SHA-256"):
        librispeech.download("dev-clean", tmp_path / "LibriSpeech", url)  # the published checksum
    assert os.listdir(tmp_path / "LibriSpeech") == []


def test_unknown_subsets_and_absent_servers(mirror, tmp_path):
    url, _, _ = mirror
    with pytest.raises(UserError, match="no checksum is known"):
        librispeech.download("dev-cleen", tmp_path, url)
    with pytest.raises(UserError, match="404"):
        librispeech.download("dev-other", tmp_path, url)
    with pytest.raises(UserError, match="broke off"):
        librispeech.download("dev-other", tmp_path, "http://127.0.0.1:9/")


# ---- a user's own corpus


@pytest.fixture
def kaldi(tmp_path):
    root = tmp_path / "kaldi"
    for split, texts in {"train": TEXTS, "dev": {"dan-1-0000": "ONE"}, "test": {"eve-1-0000": "TWO"}}.items():
        write_folder(tmp_path / "audio" / split, texts)
        (root / split).mkdir(parents=True)
        audio = {path.stem: path for path in (tmp_path / "audio" / split).rglob("*.flac")}
        (root / split / "wav.scp").write_text("".join(f"{i} {audio[i]}\n" for i in texts))
        (root / split / "text").write_text("".join(f"{i}\t{text}\n" for i, text in texts.items()))
        (root / split / "utt2spk").write_text("".join(f"{i} {i[:3]}\n" for i in texts))
    return {"name": "own", "kind": "kaldi", "path": str(root), "train": ["train"], "dev": ["dev"], "test": ["test"]}


def test_kaldi_folder_equals_the_same_corpus_in_folder_form(kaldi, tmp_path):
    folder = {**kaldi, "kind": "folder", "path": str(tmp_path / "audio")}
    assert prepare_corpus(kaldi, tmp_path / "a")["splits"] == prepare_corpus(folder, tmp_path / "b")["splits"]


def test_kaldi_paths_are_relative_to_audio_root(kaldi, tmp_path):
    for table in Path(kaldi["path"]).rglob("wav.scp"):
        table.write_text(table.read_text().replace(f"{tmp_path}/", ""))
    prepare_corpus({**kaldi, "audio_root": str(tmp_path)}, tmp_path / "out")
    refused(kaldi, tmp_path / "none", "no such audio file")


def test_kaldi_faults(kaldi, tmp_path):
    data = Path(kaldi["path"]) / "train"
    table, content = data / "wav.scp", (data / "wav.scp").read_text()
    table.write_text(
        content.replace("ann-1-0001 ", "ann-1-0001 sph2pipe -f wav ", 1).replace("0001.flac", "0001.flac |")
    )
    refused(
        kaldi, tmp_path, "wav.scp: ann-1-0001 is the command", "corpus.allow_pipes: true", "write its output to a file"
    )
    table.write_text(content.split("\n", 1)[1])
    refused(kaldi, tmp_path, "wav.scp: no line for utterance ann-1-0000")
    table.write_text(content + content)
    refused(kaldi, tmp_path, "wav.scp: id ann-1-0000 is there twice")
    table.write_text(content)
    (data / "text").write_text((data / "text").read_text().replace("THREE", ""))
    refused(kaldi, tmp_path, "text: the transcript of ann-1-0001 is empty")
    (data / "text").unlink()
    refused(kaldi, tmp_path, "text: no such file")


@pytest.fixture
def tables(corpus):
    root = Path(corpus["path"])
    for split in ("train", "dev", "test"):
        rows = ["text\tseconds\tid\tspeaker\tpath"]
        for listing in sorted((root / split).rglob("*.trans.txt")):
            for line in listing.read_text().splitlines():
                utterance_id, text = line.split(" ", 1)
                path = (listing.parent / f"{utterance_id}.flac").relative_to(root)
                rows.append(f"{text}\t0.5\t{utterance_id}\t{utterance_id[:3]}\t{path}")
        (root / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return {**corpus, "kind": "manifest"}


def test_tables_equal_the_same_corpus_in_folder_form(tables, tmp_path):
    folder = prepare_corpus({**tables, "kind": "folder"}, tmp_path / "b")
    assert prepare_corpus(tables, tmp_path / "a")["splits"] == folder["splits"]


def test_table_faults(tables, tmp_path):
    table = Path(tables["path"]) / "train.tsv"
    content = table.read_text()
    table.write_text(content.replace("speaker", "who", 1))
    refused(tables, tmp_path, "train.tsv: no column 'speaker'")
    table.write_text(content + "A\tB\n")
    refused(tables, tmp_path, "train.tsv: line 7 has 2 fields instead of 5")
    table.write_text(content + content.split("\n")[1] + "\n")
    refused(tables, tmp_path, "train.tsv: id ann-1-0000 is there twice")
    table.write_text(content.replace("THREE", ""))
    refused(tables, tmp_path, "train.tsv: the transcript of ann-1-0001 is empty")


# ---- generated corpora


def hashes(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


SMOKE = {"name": "smoke", "kind": "smoke", "train": ["train"], "dev": ["dev"], "test": ["test"]}


def test_smoke_is_small_reproducible_and_has_every_word(tmp_path):
    content = prepare_corpus(SMOKE, tmp_path / "a")
    assert prepare_corpus(SMOKE, tmp_path / "b") == content
    assert hashes(tmp_path / "a" / "audio") == hashes(tmp_path / "b" / "audio")
    assert content["splits"]["train"]["seconds"] < 90
    train = read_manifest(tmp_path / "a" / "manifest" / "train.tsv")
    assert {word for u in train for word in u.text.split()} == set(smoke.WORDS)
    speakers = {split: content["splits"][split]["speakers"] for split in ("train", "dev", "test")}
    assert speakers == {"train": 8, "dev": 4, "test": 6}


def test_smoke_is_made_anew_for_another_seed_and_kept_for_the_same(tmp_path):
    first = prepare_corpus(SMOKE, tmp_path)["splits"]["train"]["hash"]
    marker = tmp_path / "audio" / "settings.json"
    kept = marker.stat().st_mtime_ns
    assert prepare_corpus(SMOKE, tmp_path)["splits"]["train"]["hash"] == first
    assert marker.stat().st_mtime_ns == kept
    other = prepare_corpus({**SMOKE, "seed": 1, "utterances": 2}, tmp_path)
    assert other["splits"]["train"]["hash"] != first
    assert other["splits"]["train"]["utterances"] == 16


def test_a_generated_corpus_replaces_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(UserError, match="mine: is no generated corpus and is left as it is"):
        generate_corpus(SMOKE, tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]
    with pytest.raises(UserError, match="kind folder is not generated"):
        generate_corpus({**SMOKE, "kind": "folder"}, tmp_path / "other")
    generate_corpus({**SMOKE, "seed": None}, tmp_path / "audio")
    assert json.loads((tmp_path / "audio" / "settings.json").read_text())["seed"] == 0
    monkeypatch.setattr(smoke, "write_recording", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate_corpus({**SMOKE, "seed": 1}, tmp_path / "half")
    assert sorted(os.listdir(tmp_path)) == ["audio", "mine"], "whole or not at all"


def test_generated_audio_is_named_relative_to_the_data_folder(tmp_path):
    corpus = {**SMOKE, **BOUNDS, "path": str(tmp_path / "data/smoke/audio-1")}
    generate_corpus(corpus, Path(corpus["path"]))
    prepare_split(corpus, "test", tmp_path / "data/smoke/test-2")
    shutil.move(tmp_path / "data", tmp_path / "moved")
    (first, *_) = read_manifest(tmp_path / "moved/smoke/test-2/manifest/test.tsv")
    assert first.path == str(tmp_path / "moved/smoke/audio-1/test/013/1/013-1-0000.flac") and Path(first.path).exists()


def test_demo_voices():
    """At least 60 voices to train on and 20 others: no voice is in two splits."""
    voices = {split: set(names) for split, names in demo.VOICES.items()}
    assert len(voices["train"]) >= 60 and len(voices["dev"]) >= 10 and len(voices["test"]) >= 10
    for a, b in pairwise(["train", "dev", "test", "train"]):
        assert not voices[a] & voices[b]
    ids = [speaker for speaker, _, _ in demo.speakers()]
    assert len(set(ids)) == len(ids) == sum(len(names) for names in demo.VOICES.values())


def test_demo_sentences():
    random = np.random.default_rng(0)
    sentences = [demo_grammar.sentence(random) for _ in range(10_000)]
    words = {word for sentence in sentences for word in sentence.split()}
    assert words == demo_grammar.vocabulary()
    assert 200 < len(words) < 500
    assert all(re.fullmatch(r"[A-Z']+( [A-Z']+)*", sentence) for sentence in sentences)
    assert len(set(sentences)) > 5_000


def test_a_demo_shard_is_the_same_bit_for_bit_in_each_process(tmp_path):
    settings = {"seed": 3, "minutes": {"train": 0.1, "dev": 0.1, "test": 0.1}, "snr_db": [5, 25]}
    for name in ("a", "b"):
        command = [sys.executable, "-m", "geomix.speech.corpora.demo", json.dumps(settings), str(tmp_path / name), "7"]
        subprocess.run(command, check=True)
    made = hashes(tmp_path / "a")
    assert made == hashes(tmp_path / "b")
    assert len([name for name in made if name.endswith(".flac")]) >= 10
    levels = []
    for name in made:
        if name.endswith(".flac"):
            samples, rate = soundfile.read(tmp_path / "a" / name)
            assert rate == 16_000 and 1 < len(samples) / rate < 15
            levels.append(20 * np.log10(np.abs(samples).max()))
    assert max(levels) - min(levels) > 4, "levels vary"


@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_demo_noise_is_at_its_ratio(snr_db):
    speech = 0.2 * np.random.default_rng(0).standard_normal(32_000)
    clean = demo._outdoors(speech, 200.0, np.random.default_rng(1))
    noisy = demo._outdoors(speech, snr_db, np.random.default_rng(1))
    noise = noisy * (clean @ clean) / (clean @ noisy) - clean  # the two differ in gain too
    spoken = np.sum(clean**2) / len(speech)
    assert 10 * np.log10(spoken / np.mean(noise**2)) == pytest.approx(snr_db, abs=0.2)
    assert np.abs(clean[:800]).max() < 1e-6 < np.abs(noisy[:800]).max(), "noise stands before the speech too"
