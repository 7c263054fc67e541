"""Odd and damaged checkpoints, one sentence each: adapters, types, configurations, tokenizers, templates, numbers and audio."""

import argparse
import json
import shutil

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from geomix.commands import granite
from geomix.errors import UserError, exit_with_sentence
from geomix.models.granite import (
    CTCTranscriber,
    Transcriber,
    attach_adapter,
    load_checkpoint,
    load_encoder,
    save_checkpoint,
)
from geomix.models.granite.checkpoint import load_model
from geomix.models.granite.transcription import cut_windows
from tests.models.granite.tiny_checkpoint import make_checkpoint


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("granite") / "tiny-speech")


@pytest.fixture
def folder(source, tmp_path):
    return shutil.copytree(source, tmp_path / "checkpoint")


def change(path, **values):
    settings = json.loads(path.read_text())
    for name, value in values.items():
        if value is ...:
            settings.pop(name)
        else:
            settings[name] = value
    path.write_text(json.dumps(settings))


def noise(seconds, seed=0):
    return (np.random.default_rng(seed).standard_normal(int(seconds * 16000)) * 0.1).astype(np.float32)


@pytest.mark.parametrize("word", ["merge_it", "Merge", "", "none", None])
def test_an_unknown_treatment_of_the_adapter_is_refused(source, word):
    """It loaded the base weights, in silence: wrong for audio."""
    with pytest.raises(UserError, match="is not known: choose one of merge, train, ignore"):
        load_model(source, adapter=word)


@pytest.mark.parametrize(
    "values,named",
    [
        ({"r": 0}, "r is 0"),
        ({"r": -4}, "r is -4"),
        ({"r": "4"}, "r is '4'"),
        ({"r": ...}, "r is None"),
        ({"lora_alpha": ...}, "lora_alpha is None"),
        ({"lora_alpha": "x"}, "lora_alpha is 'x'"),
        ({"target_modules": 3}, "target_modules is 3"),
        ({"target_modules": [None]}, "target_modules is"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
        ({"target_modules": ["q_proj", "k_proj", "v_proj"]}, r"k_proj\.weight is missing"),
    ],
)
def test_a_setting_of_an_adapter_that_makes_no_sense_is_named(folder, values, named):
    change(folder / "adapter_config.json", **values)
    for adapter in ("merge", "train"):
        with pytest.raises(UserError, match=named):
            load_model(folder, adapter=adapter)


@pytest.mark.parametrize("target", ["q_proj|v_proj", None, ...])
def test_an_adapters_targets_may_be_a_pattern_or_absent(folder, target):
    before = load_model(folder).state_dict()
    change(folder / "adapter_config.json", target_modules=target)
    assert all(torch.equal(value, before[name]) for name, value in load_model(folder).state_dict().items())


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1", None], ids=["empty", "a pointer", "cut"]
)
@pytest.mark.parametrize("file", ["adapter_model.safetensors", "model.safetensors"])
def test_a_damaged_file_of_weights_is_named(folder, file, content):
    path = folder / file
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(UserError, match=f"{file}: not a safetensors file"):
        load_model(folder)


@pytest.mark.parametrize("content", ["[]", "{", '"text"', "3"])
@pytest.mark.parametrize(
    "file", ["config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
)
def test_a_file_of_settings_that_holds_something_else_is_named(folder, file, content):
    (folder / file).write_text(content)
    with pytest.raises(UserError, match=file.replace(".", r"\.")):
        load_checkpoint(folder)


@pytest.mark.parametrize("content", ["[]", '{"metadata": {}}', '{"weight_map": 3}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_is_none_is_named(folder, content):
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(UserError, match=r"model\.safetensors\.index\.json"):
        load_model(folder)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.bool])
@pytest.mark.parametrize("file,start", [("model.safetensors", "encoder.out.weight"), ("adapter_model.safetensors", "")])
def test_quantised_weights_are_refused_by_name(folder, file, start, kind):
    tensors = load_file(folder / file)
    name = next(name for name in sorted(tensors) if name.startswith(start))
    tensors[name] = tensors[name].to(kind)
    save_file(tensors, folder / file)
    with pytest.raises(UserError, match="is stored as torch"):
        load_model(folder)
    if start:
        with pytest.raises(UserError, match="is stored as torch"):
            load_encoder(folder)


@pytest.mark.parametrize(
    "section,key,value",
    [
        ("encoder_config", "num_layers", "4"),
        ("encoder_config", "num_layers", 0),
        ("encoder_config", "num_layers", True),
        ("encoder_config", "context_size", 16.5),
        ("encoder_config", "dropout", "low"),
        ("encoder_config", "input_dim", 80),
        ("projector_config", "num_attention_heads", 5),
        ("projector_config", "layer_norm_eps", None),
        ("projector_config", "encoder_hidden_size", 25),
        ("text_config", "num_key_value_heads", 3),
        ("text_config", "rms_norm_eps", 0),
        ("text_config", "rope_theta", "1e4"),
        ("text_config", "head_dim", 3),
        ("text_config", "attention_multiplier", [1.0]),
        ("text_config", "rope_parameters", "default"),
        ("text_config", "eos_token_id", "end"),
        (None, "audio_token_index", "<|audio|>"),
        (None, "has_lora_adapter", "yes"),
        (None, "window_size", 0),
        (None, "downsample_rate", 99),
        (None, "text_config", [1]),
    ],
)
def test_a_configuration_that_makes_no_sense_is_named(folder, section, key, value):
    config = json.loads((folder / "config.json").read_text())
    (config[section] if section else config)[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=rf"config\.json: .*{key}|head.* {value}"):
        load_checkpoint(folder)


def test_heads_that_share_no_keys_need_no_number_of_key_heads(folder):
    """As transformers reads a config.json without num_key_value_heads: as many as heads, not 32."""
    config = json.loads((folder / "config.json").read_text())
    del config["text_config"]["num_key_value_heads"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"k_proj\.weight has shape \[16, 32\], the config gives \[32, 32\]"):
        load_model(folder)


@pytest.mark.parametrize(
    "template,named",
    [
        ("{% for %}", "cannot be read"),
        ("{{ messages[7]['role'] }}", "fails on this prompt"),
        ("{{ 1 / 0 }}", "fails on this prompt"),
        ("{{ messages.clear() }}", "fails on this prompt"),
        (7, "no chat_template"),
    ],
)
def test_a_broken_template_is_a_sentence(folder, template, named):
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(UserError, match=named):
        load_checkpoint(folder)[1].render()


@pytest.mark.parametrize("end", ["</s>", [], [0, 10_000], -1, True])
def test_an_end_that_is_no_token_is_named(folder, end):
    change(folder / "generation_config.json", eos_token_id=end)
    with pytest.raises(UserError, match="eos_token_id"):
        load_checkpoint(folder)


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"dtype": "half"}, {"device": "gpu"}, {"device": ""}], ids=str)
def test_a_type_or_a_device_that_does_not_exist_is_named(source, options):
    with pytest.raises(UserError, match="is not known: choose"):
        load_model(source, **options)
    with pytest.raises(UserError, match="is not known: choose"):
        load_encoder(source, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": -3}, {"max_new_tokens": 0}, {"max_new_tokens": "9"}, {"beams": 0}, {"beams": 1.5}, {"batch": 0},
        {"length_penalty": float("nan")}, {"length_penalty": "1"}, {"window_seconds": "40"},
    ],
    ids=str,
)  # fmt: skip
def test_an_option_of_decoding_that_makes_no_sense_is_named(source, options):
    with pytest.raises(UserError, match=next(iter(options))):
        Transcriber(*load_checkpoint(source), **options)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 3.9, -1.0])
def test_a_window_that_makes_no_sense_is_refused(seconds):
    with pytest.raises(UserError, match="at least 4 s"):
        cut_windows(noise(1), seconds)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_refused_and_never_an_empty_text(source, value):
    bad = noise(1)
    bad[123] = value
    for transcriber in (Transcriber(*load_checkpoint(source)), CTCTranscriber(load_encoder(source))):
        with pytest.raises(UserError, match="recording 1: sample 123"):
            transcriber.transcribe([noise(1), bad])


@pytest.mark.parametrize("beams", [1, 2])
def test_nan_logits_are_refused_and_never_a_blank_or_an_end(source, beams):
    """argmax of NaN is 0: the blank of the CTC head, the end of the tiny checkpoint's text."""
    model, tokenizer = load_checkpoint(source)
    with torch.no_grad():
        model.language_model.model.norm.weight[0] = torch.nan
        model.encoder.out.bias[3] = torch.nan
    with pytest.raises(UserError, match="no number in float32"):
        Transcriber(model, tokenizer, beams=beams).transcribe([noise(1)])
    with pytest.raises(UserError, match="no number in float32"):
        CTCTranscriber(model.encoder).transcribe([noise(1)])


def test_placeholders_are_counted_item_by_item(source):
    """6 + 3 placeholders and 3 + 6 rows have equal sums; each item's rows would have come from the other's audio."""
    model, tokenizer = load_checkpoint(source)
    row = lambda n: torch.zeros(n, 32)
    ids = [tokenizer.encode("<|audio|>", [n]) for n in (6, 3)]
    batch = torch.tensor([ids[0], [tokenizer.pad] * (len(ids[0]) - len(ids[1])) + ids[1]])
    assert model.embed(batch, [row(6), row(3)]).shape == (2, len(ids[0]), 32)
    assert model.embed(batch, [row(3), row(3), row(3)]).shape[0] == 2  # two audios in the first item
    for rows in ([row(3), row(6)], [row(6)], [row(9)], [row(6), row(3), row(3)], [row(4), row(5)], []):
        with pytest.raises(ValueError, match="item [01]: [36] audio placeholders"):
            model.embed(batch, rows)


@pytest.mark.parametrize("lengths", [[3], [3, 4, 4], [5, 4], [-1, 4]])
def test_lengths_of_features_are_checked_item_by_item(source, lengths):
    model = load_model(source)
    with pytest.raises(ValueError, match="lengths"):
        model.audio_rows(torch.zeros(2, 4, 160), torch.tensor(lengths))


def test_weights_that_are_shared_are_saved_and_an_attached_adapter_is_not_lost(source, tmp_path):
    model = load_model(source)
    model.encoder.layers[1].ff1.up_proj.weight = model.encoder.layers[0].ff1.up_proj.weight
    save_checkpoint(model, tmp_path / "tied")
    again = load_model(tmp_path / "tied").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    attach_adapter(model, 2)
    with pytest.raises(UserError, match="adapter beside its weights"):
        save_checkpoint(model, tmp_path / "adapted")
    with pytest.raises(UserError, match="names '4'"):
        save_checkpoint(load_model(source), tmp_path / "named", names="4")


# -- the command --------------------------------------------------------------------------------------------------------------


def run(capsys, *arguments):
    """(status, standard output, standard error) of `geomix granite`."""
    parser = argparse.ArgumentParser()
    granite.add_arguments(parser)
    status = 0
    try:
        with exit_with_sentence():
            granite.run(parser.parse_args([str(a) for a in arguments]))
    except SystemExit as ended:
        status = ended.code
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    "option,value",
    [
        ("--max-new-tokens", "-3"), ("--max-new-tokens", "0"), ("--window-seconds", "nan"), ("--window-seconds", "inf"),
        ("--beams", "0"), ("--batch", "none"),
    ],
)  # fmt: skip
def test_a_number_that_makes_no_sense_is_refused_by_the_command(source, capsys, option, value):
    status, _, error = run(capsys, "transcribe", "x.wav", "--checkpoint", source, f"{option}={value}")
    assert status == 2 and option in error and value in error


@pytest.mark.parametrize("head", ["transcribe", "ctc"])
def test_bad_audio_is_named_and_the_rest_is_transcribed(source, tmp_path, capsys, head):
    bad = noise(1)
    bad[0] = np.nan
    files = {
        "a.wav": noise(0.5),
        "empty.wav": noise(0),
        "short.wav": noise(0.01),
        "nan.wav": bad,
        "b.wav": noise(0.6, 1),
    }
    for name, samples in files.items():
        soundfile.write(tmp_path / name, samples, 16000, subtype="FLOAT")
    more = ["--max-new-tokens", 3] if head == "transcribe" else []
    status, out, error = run(
        capsys, head, *(tmp_path / name for name in files), "--checkpoint", source, "--device", "cpu", "--json",
        tmp_path / "w.jsonl", *more,
    )  # fmt: skip
    assert status == 1
    assert [line.split("\t")[0] for line in out.splitlines()] == [str(tmp_path / name) for name in ("a.wav", "b.wav")]
    assert all(f"{name}: " in error for name in ("empty.wav", "short.wav", "nan.wav")) and "Traceback" not in error
    windows = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
    assert [window["file"] for window in windows] == [str(tmp_path / name) for name in ("a.wav", "b.wav")]
    status, out, error = run(capsys, head, tmp_path / "empty.wav", "--checkpoint", tmp_path / "nowhere")
    assert status == 1 and out == "" and "is empty" in error  # told before weights are looked for


def test_new_lines_of_a_text_do_not_break_its_line(source, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Transcriber, "_texts", lambda self, waveforms: ["one\ntwo\r\n\tthree"] * len(waveforms))
    soundfile.write(tmp_path / "a.wav", noise(0.5), 16000)
    status, out, _ = run(capsys, "transcribe", tmp_path / "a.wav", "--checkpoint", source, "--device", "cpu")
    assert status == 0 and out == f"{tmp_path / 'a.wav'}\tone two three\n"
