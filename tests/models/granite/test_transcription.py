"""Prompts, windows, batches and the command, on a tiny checkpoint with a real tokenizer."""

import argparse
import json

import numpy as np
import pytest
import soundfile
import torch

from geomix.commands import granite
from geomix.errors import UserError, exit_with_sentence
from geomix.models.granite import CTCTranscriber, Transcriber, load_checkpoint, load_encoder
from geomix.models.granite.checkpoint import load_model
from geomix.models.granite.features import batch_features
from geomix.models.granite.transcription import ctc_alphabet, cut_windows
from tests.models.granite.tiny_checkpoint import TEMPLATE_4, make_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("granite") / "tiny-speech")


@pytest.fixture(scope="module")
def loaded(folder):
    return load_checkpoint(folder)


def noise(seconds, seed):
    return (np.random.default_rng(seed).standard_normal(int(seconds * 16000)) * 0.1).astype(np.float32)


def test_prompt_of_the_3_x_cards(loaded):
    assert loaded[1].render() == (
        "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024.\nToday's Date: December 19, 2024.\n"
        "You are Granite, developed by IBM. You are a helpful AI assistant<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|><|audio|>can you transcribe the speech into a written format?<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>"
    )
    assert loaded[1].render("hi", system=None).startswith("<|start_of_role|>user<|end_of_role|><|audio|>hi")


def test_prompt_of_the_4_x_cards_has_no_system_turn(tmp_path):
    _, tokenizer = load_checkpoint(make_checkpoint(tmp_path / "four", template=TEMPLATE_4, adapter=False))
    assert tokenizer.render() == ("USER: <|audio|>can you transcribe the speech into a written format?\n ASSISTANT:")
    with pytest.raises(UserError, match="only user turns"):
        tokenizer.render(system="be brief")


def test_placeholders_are_expanded_to_the_rows_of_each_audio(loaded):
    _, tokenizer = loaded
    ids = tokenizer.encode(tokenizer.render(), [6])
    assert ids.count(tokenizer.audio_id) == 6
    first = ids.index(tokenizer.audio_id)
    assert ids[first : first + 6] == [tokenizer.audio_id] * 6
    assert [i for i in ids if i != tokenizer.audio_id] == [
        i for i in tokenizer.tokenizer.encode(tokenizer.render()).ids if i != tokenizer.audio_id
    ]
    two = tokenizer.encode("<|audio|>and<|audio|>", [3, 6])
    assert two[:3] == [tokenizer.audio_id] * 3 and two[-6:] == [tokenizer.audio_id] * 6 and len(two) > 9
    with pytest.raises(UserError, match="1 <|audio|> placeholders for 2 audios".replace("|", r"\|")):
        tokenizer.encode("<|audio|>", [3, 3])


def test_wrong_number_of_rows_is_refused(loaded):
    model, tokenizer = loaded
    with pytest.raises(ValueError, match="6 audio placeholders in the prompt, but 3 rows"):
        model.embed(torch.tensor([tokenizer.encode("<|audio|>", [6])]), [torch.zeros(3, 32)])


def test_a_batch_gives_each_recording_the_text_it_has_alone(loaded):
    model, tokenizer = loaded
    recordings = [noise(seconds, seed) for seed, seconds in enumerate((0.4, 1.7, 1.1, 0.016, 0.7))]
    for beams in (1, 3):
        options = {"beams": beams, "max_new_tokens": 8}
        together = Transcriber(model, tokenizer, batch=4, **options).transcribe(recordings)
        alone = [Transcriber(model, tokenizer, batch=1, **options).transcribe([one])[0] for one in recordings]
        assert together == alone
        assert together[3] == "" and len(set(together)) > 2  # 256 samples have no features


def test_half_precision_runs_through(folder):
    for dtype in ("bfloat16", "float16"):
        model, tokenizer = load_checkpoint(folder, dtype=dtype)
        assert model.dtype == getattr(torch, dtype)
        features, lengths = batch_features([torch.from_numpy(noise(1.0, 0))])
        ids = torch.tensor([tokenizer.encode(tokenizer.render(), [12])])
        with torch.inference_mode():
            half, full = model(ids, features, lengths), load_model(folder)(ids, features, lengths)
        assert half.isfinite().all() and (half.float() - full).norm() / full.norm() < 0.2
        Transcriber(model, tokenizer, max_new_tokens=3).transcribe([noise(0.5, 1)])


def test_the_ctc_head(folder):
    """Against a plain loop over the argmax; items in a batch as alone."""
    encoder = load_encoder(folder)
    recordings = [noise(seconds, seed) for seed, seconds in enumerate((1.3, 0.5, 0.9))]
    together = CTCTranscriber(encoder, batch=3).transcribe(recordings)
    for recording, text in zip(recordings, together, strict=True):
        features, lengths = batch_features([torch.from_numpy(recording)])
        with torch.inference_mode():
            path = encoder.ctc_logits(encoder(features, lengths))[0].argmax(-1).tolist()
        expected, previous = "", None
        for symbol in path:
            if symbol not in (previous, 0):
                expected += chr(symbol)
            previous = symbol
        assert text == expected.strip()
    assert len("".join(together)) > 6
    assert len(ctc_alphabet(348)) == 348 and ctc_alphabet(348)[-1] == "ー" and ctc_alphabet(256)[65] == "A"
    with pytest.raises(UserError, match="42 symbols is not published"):
        ctc_alphabet(42)
    with pytest.raises(UserError, match="the alphabet has 3 symbols, the CTC head 256"):
        CTCTranscriber(encoder, ["", "a", "b"])


def test_long_audio_is_cut_in_its_pauses():
    """Noise with 0.3 s pauses: every cut lies inside one, windows cover the recording and none is too long or too short."""
    recording = noise(61.0, 0)
    pauses = [(second, second + 0.3) for second in (7.5, 16.0, 24.2, 31.9, 40.5, 48.2, 56.0)]
    for start, end in pauses:
        recording[int(start * 16000) : int(end * 16000)] = 0
    windows = cut_windows(recording, 10.0)
    assert windows[0][0] == 0 and windows[-1][1] == len(recording)
    assert all(a[1] == b[0] for a, b in zip(windows, windows[1:], strict=False))
    assert all(16000 <= end - start <= 160000 for start, end in windows)
    for _, end in windows[:-1]:
        assert any(start * 16000 <= end <= stop * 16000 for start, stop in pauses), end / 16000
    assert cut_windows(recording[:160000], 10.0) == [(0, 160000)]
    assert cut_windows(noise(10.01, 1), 10.0)[-1][1] - cut_windows(noise(10.01, 1), 10.0)[-1][0] >= 16000
    with pytest.raises(UserError, match="at least 4 s"):
        cut_windows(recording, 2.0)


def test_windows_of_a_long_recording_are_joined(loaded):
    model, tokenizer = loaded
    recording = noise(9.0, 5)
    transcriber = Transcriber(model, tokenizer, max_new_tokens=4, window_seconds=4.0)
    windows = transcriber.windows([recording])
    assert len(windows) >= 3 and (windows[0].start, windows[-1].end) == (0, len(recording))
    pieces = [transcriber.transcribe([recording[w.start : w.end]])[0] for w in windows]
    assert [w.text for w in windows] == pieces
    assert transcriber.transcribe([recording]) == [" ".join(filter(None, pieces))]


def test_the_commands(folder, tmp_path, capsys):
    def main(arguments):
        parser = argparse.ArgumentParser()
        granite.add_arguments(parser)
        with exit_with_sentence():
            chosen = parser.parse_args(arguments)
            granite.run(chosen)

    for index, seconds in enumerate((0.6, 5.0)):
        soundfile.write(tmp_path / f"{index}.wav", noise(seconds, index), 16000)
    audio = [str(tmp_path / "0.wav"), str(tmp_path / "1.wav")]
    common = [
        "--checkpoint",
        str(folder),
        "--device",
        "cpu",
        "--window-seconds",
        "4",
        "--json",
        str(tmp_path / "w.jsonl"),
    ]
    main(["transcribe", *audio, *common, "--max-new-tokens", "5", "--beams", "2", "--dtype", "bfloat16"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == audio
    windows = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
    assert [w["file"] for w in windows] == [audio[0], audio[1], audio[1]]
    assert (windows[1]["start"], windows[1]["end"], windows[2]["end"]) == (0, windows[2]["start"], 5.0)
    main(["ctc", *audio, *common, "--progress"])
    out = capsys.readouterr()
    assert len(out.out.splitlines()) == 2 and "3/3 utterances" in out.err
    main(["export", "--checkpoint", str(folder), "--out", str(tmp_path / "merged"), "--names", "3.2"])
    first, second = load_model(folder).state_dict(), load_checkpoint(tmp_path / "merged")[0].state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    with pytest.raises(SystemExit):
        main(["ctc", audio[0], "--checkpoint", str(tmp_path / "nowhere")])
    assert "put a Granite Speech checkpoint there" in capsys.readouterr().err
