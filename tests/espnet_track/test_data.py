"""ESPnet's data folder and configuration from ours: files by hand, refusals by name. No ESPnet is needed here."""

import copy

import numpy as np
import pytest
import soundfile

from geomix.errors import UserError
from geomix.espnet_track import environment
from geomix.espnet_track.data import read_scp, write_data, write_training_shapes
from geomix.espnet_track.settings import model_keys, training_keys
from geomix.espnet_track.weights import espnet_name, from_espnet, to_espnet
from geomix.settings import load, resolve, training_settings
from geomix.speech.manifest import read_manifest
from geomix.speech.tokenizer import Tokenizer
from geomix.training.averaging import Selection
from tests.conftest import ROOT

BEST = Selection(10, "dev_cer")


@pytest.fixture(scope="module")
def config():
    return load(base=ROOT / "config.yaml")


def test_the_folder_holds_what_the_manifest_holds(prepared):
    folder, tokenizer = prepared.root / "espnet" / "train", Tokenizer.load(prepared.root / "tokenizer")
    utterances = read_manifest(prepared.root / "manifest/train.tsv")
    files = {name: read_scp(folder / name) for name in ("wav.scp", "text", "utt2spk", "speech_shape", "text_shape")}
    for name, content in files.items():
        assert list(content) == [u.id for u in utterances], name  # ESPnet keeps this order among equal lengths
    for u in utterances[::7]:
        assert files["text"][u.id] == u.text and files["utt2spk"][u.id] == u.speaker
        assert int(files["speech_shape"][u.id]) == u.samples == soundfile.info(files["wav.scp"][u.id]).frames
        assert files["text_shape"][u.id] == f"{len(tokenizer.encode(u.text))},{tokenizer.size}"
    assert sum(u.speed == 1.1 for u in utterances) == 48


def test_speed_copies_are_the_features_waveforms_in_16_bits(prepared):
    import torch

    from geomix.speech.audio import perturb_speed, read_audio

    copy_ = next(u for u in read_manifest(prepared.root / "manifest/train.tsv") if u.speed == 1.1)
    written = read_audio(read_scp(prepared.root / "espnet/train/wav.scp")[copy_.id])
    exact = perturb_speed(torch.from_numpy(read_audio(copy_.path)), 1.1).numpy()
    assert np.abs(written - exact).max() <= 0.51 / 32768


def test_a_speed_without_copies_is_named(prepared, tmp_path):
    with pytest.raises(UserError, match=r"speed 1.1, and no audio copies"):
        write_data(prepared.root / "manifest/train.tsv", Tokenizer.load(prepared.root / "tokenizer"), tmp_path)


def test_what_ctc_cannot_align_is_left_out(prepared, tmp_path):
    files, dropped = write_training_shapes(prepared.data, 4, tmp_path)
    assert dropped == [] and len(read_scp(files[0])) == 96
    # with 80 ms an encoder frame some bursts are too short; what stays and what is left out is everything
    files, dropped = write_training_shapes(prepared.data, 8, tmp_path)
    assert len(read_scp(files[0])) + len(dropped) == 96 and not set(dropped) & set(read_scp(files[0]))


def test_the_recipe_in_espnets_words(config):
    """egs2/librispeech_100/asr1/conf/tuning/train_asr_ctc_e_branchformer_e12_mlp1024_linear1024.yaml, but for the encoder."""
    keys = training_keys(training_settings(config, "attention", 0, "espnet"), BEST, gpu=True, updates=570)
    expected = {
        "batch_type": "numel", "batch_bins": 16_000_000, "accum_grad": 4, "max_epoch": 70, "optim": "adam",
        "optim_conf": {"lr": 0.002, "weight_decay": 1e-6}, "scheduler": "warmuplr",
        "scheduler_conf": {"warmup_steps": 15000}, "keep_nbest_models": 10, "use_amp": True,
        "best_model_criterion": [["valid", "cer_ctc", "min"]],
    }  # fmt: skip
    assert {key: keys[key] for key in expected} == expected
    specaug = keys["specaug_conf"]
    assert specaug["freq_mask_width_range"] == [0, 27] and specaug["num_freq_mask"] == 2
    assert specaug["time_mask_width_ratio_range"] == [0.0, 0.05] and specaug["num_time_mask"] == 5
    assert specaug["apply_time_warp"] and specaug["time_warp_window"] == 5
    fewer = training_settings({**config, "training": {**config["training"], "epochs": 3}}, "attention", 0, "espnet")
    keys = training_keys(fewer, BEST, gpu=False, updates=570)
    assert keys["keep_nbest_models"] == 3 and not keys["use_amp"]


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("training", "max_updates", 10, "max_updates"),
        ("training", "precision", "bf16", "bf16"),
        ("model", "batch_norm", "masked", "batch_norm"),
    ],
)
def test_what_espnet_cannot_do_is_refused_by_name(config, section, key, value, words):
    changed = copy.deepcopy(config)
    changed[section][key] = value
    settings = training_settings(changed, "attention", 0, "espnet")
    with pytest.raises(UserError, match=words):
        model_keys(settings), training_keys(settings, BEST, gpu=False, updates=570)


def test_a_criterion_that_espnet_does_not_report_is_refused(config):
    with pytest.raises(UserError, match="best_by 'dev_wer'"):
        training_keys(
            training_settings(config, "attention", 0, "espnet"), Selection(10, "dev_wer"), gpu=False, updates=9
        )


def test_an_anchor_stays_on_its_track(config):
    changed = copy.deepcopy(config)
    changed["arms"]["anchor"] = {"architecture": "e_branchformer"}
    changed["study"]["arms"] = ["attention", "anchor"]
    with pytest.raises(UserError, match="gate.fallback"):
        resolve(changed)
    changed["study"]["arms"] = ["attention"]
    changed["gate"]["fallback"] = {"track": "own", "arm": "anchor", "seeds": [0], "targets": changed["gate"]["targets"]}
    with pytest.raises(UserError, match="track espnet alone"):
        resolve(changed)
    changed["gate"]["fallback"]["track"] = "espnet"
    resolve(changed)


def test_the_release_is_a_setting_of_this_track_alone(config):
    assert training_settings(config, "attention", 0, "espnet")["espnet"] == "202611"
    assert "espnet" not in training_settings(config, "attention", 0, "own")


def test_names_go_both_ways():
    names = ["mean", "embed.conv.1.weight", "embed.out.bias", "blocks.3.mixer.reduce.weight", "blocks.3.norm_mha.bias", "ctc.weight"]  # fmt: skip
    theirs = to_espnet({name: name for name in names}, attention=False)
    assert theirs["encoder.encoders.3.self_attn.mixer.reduce.weight"] == "blocks.3.mixer.reduce.weight"
    assert theirs["encoder.embed.conv.2.weight"] == "embed.conv.1.weight"
    assert from_espnet({**theirs, "frontend.logmel.melmat": ""}, dict.fromkeys(names), attention=False) == {
        n: n for n in names
    }
    assert espnet_name("blocks.0.mixer.linear_q.bias", attention=True) == "encoder.encoders.0.self_attn.linear_q.bias"
    with pytest.raises(ValueError, match="not those of our model"):
        from_espnet({**theirs, "encoder.other": ""}, dict.fromkeys(names), attention=False)


def test_without_espnet_one_sentence_says_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOMIX_ESPNET_PYTHON", str(tmp_path / "python"))
    with pytest.raises(UserError, match="make espnet"):
        environment.espnet_python()
