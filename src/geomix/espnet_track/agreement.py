"""What both tracks make of the same data and the same weights: the checks behind a difference between their trained arms.

Needs ESPnet. Each check gives one number and the bound that it must keep, if any; a miss is written down, not raised.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from espnet2.samplers.num_elements_batch_sampler import NumElementsBatchSampler
from espnet2.tasks.abs_task import scheduler_classes
from espnet2.tasks.asr import ASRTask

from geomix.espnet_track.data import EspnetData, read_scp, read_shapes, write_training_shapes
from geomix.espnet_track.settings import data_keys, model_keys, subsampling_of, training_keys
from geomix.espnet_track.weights import FRONTEND, from_espnet, to_espnet
from geomix.models.architectures import model_config
from geomix.models.flops import parameter_count
from geomix.settings import ESPNET_VERSION
from geomix.speech.audio import read_audio
from geomix.speech.batching import FrameSource, numel_batches, pad_tokens, shuffled
from geomix.speech.features import FeatureStore, read_normalisation
from geomix.speech.manifest import original_id
from geomix.speech.tokenizer import Tokenizer
from geomix.training.averaging import Selection
from geomix.training.schedules import SCHEDULES

UTTERANCES = 16  # of the batch whose loss is compared, and of each kind whose features are
ANY = Selection(1, "dev_cer")  # no check looks at the choice of epochs
NO_DROPOUT = {"dropout": 0.0, "positional_dropout": 0.0, "attention_dropout": 0.0}


def check(
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    train_features: Sequence[str],
    dev_features: str,
    normalisation: str,
) -> dict[str, Any]:
    """All checks -> {"espnet": version, "checks": [{"check", "about", "value", "bound", "passed"}, ...]}.

    Parameters
    ----------
    settings : arm -> its `training_settings` on this track; data : fields of `EspnetData`
    train_features, dev_features, normalisation : the own track's
    """
    folder = EspnetData(**{key: Path(value) for key, value in data.items()})
    tokenizer = Tokenizer.load(folder.tokenizer)
    some = next(iter(settings.values()))
    stores = {"train": FeatureStore.open(*train_features), "dev": FeatureStore.open(dev_features)}
    checks = [
        *parameter_counts(settings, tokenizer.size),
        *features(folder, stores),
        *statistics(folder, Path(normalisation)),
        *tokenisation(folder, tokenizer),
        *losses(settings, folder, tokenizer, stores["dev"]),
        learning_rates(some),
        *batches(some, folder),
    ]
    return {"espnet": ESPNET_VERSION, "checks": checks}


def _entry(check: str, about: str, value: float, bound: float | None) -> dict[str, Any]:
    passed = bool(np.isfinite(value) and (bound is None or value <= bound))
    return {
        "check": check,
        "about": about,
        "value": float(value) if np.isfinite(value) else None,
        "bound": bound,
        "passed": passed,
    }


def build_espnet(
    settings: Mapping[str, Any], tokens: str | Sequence[str], stats: Path | None = None
) -> torch.nn.Module:
    """ESPnet's own build of an arm (`ASRTask.build_model`).

    tokens : path of a token list, or the tokens; stats : of global mean and variance, without which nothing normalises
    """
    keys = {
        **model_keys(settings),
        "token_list": tokens,
        "input_size": None,
        "specaug": None,
        "specaug_conf": {},
        "normalize": "global_mvn" if stats else None,
        "normalize_conf": {"stats_file": str(stats)} if stats else {},
        "preencoder": None,
        "postencoder": None,
        "ctc_conf": {},
    }
    return ASRTask.build_model(argparse.Namespace(**keys))


def parameter_counts(settings: Mapping[str, Any], vocab: int) -> Iterator[dict[str, Any]]:
    """Difference between the two builds of each arm, in parameters."""
    tokens = ["<blank>", "<unk>", *(f"t{i}" for i in range(vocab - 3)), "<sos/eos>"]
    for arm, own in settings.items():
        theirs = sum(p.numel() for p in build_espnet(own, tokens).parameters())
        ours = parameter_count(model_config({**own["model"], "vocab": vocab, "seed": own["seed"]}))
        yield _entry("parameters", f"{arm}: {ours:,}", abs(theirs - ours), 0)


def features(data: EspnetData, stores: Mapping[str, FeatureStore]) -> Iterator[dict[str, Any]]:
    """Largest difference between ESPnet's log-mel and our stored one (natural logarithm), recordings and speed copies apart."""
    from espnet2.asr.frontend.default import DefaultFrontend

    frontend = DefaultFrontend(fs=16000, n_fft=512, win_length=400, hop_length=160, n_mels=80)
    differences: dict[str, list[float]] = {}
    for split, store in stores.items():
        audio = read_scp({"train": data.train, "dev": data.dev}[split] / "wav.scp")
        copies = [i for i in audio if original_id(i) != i]
        for kind, ids in (("recordings", [i for i in audio if original_id(i) == i]), ("speed copies", copies)):
            for i in ids[:: max(1, len(ids) // UTTERANCES)]:
                waveform = torch.from_numpy(read_audio(audio[i]))[None]
                theirs, _ = frontend(waveform, torch.tensor([waveform.shape[1]]))
                ours = torch.from_numpy(np.array(store[i], np.float32))
                differences.setdefault(kind, []).append(float((theirs[0] - ours).abs().max()))
    # float16 stores round to 1/128
    exact = 1e-3 if next(iter(stores["dev"].values())).dtype == np.float32 else 1e-2
    for kind, found in differences.items():
        about = f"{len(found)} {kind}, largest difference of a log-mel value"
        # copies are rounded to 16 bits, which is felt without limit where a band holds next to nothing
        yield _entry("features", about, max(found), exact if kind == "recordings" else None)


def statistics(data: EspnetData, normalisation: Path) -> Iterator[dict[str, Any]]:
    """Mean and standard deviation of the bands that both tracks normalise by."""
    sums = np.load(data.stats)
    mean = sums["sum"] / sums["count"]
    std = np.sqrt(np.maximum(sums["sum_square"] / sums["count"] - mean * mean, 1e-20))
    for name, theirs, ours in zip(
        ("mean", "standard deviation"), (mean, std), read_normalisation(normalisation), strict=True
    ):
        yield _entry(
            "normalisation", f"{name} of the bands, largest difference", np.abs(theirs - np.asarray(ours)).max(), 1e-2
        )


def tokenisation(data: EspnetData, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Texts of train and dev that ESPnet's preprocessor gives other token ids than ours; ids that lie elsewhere in the list."""
    from espnet2.train.preprocessor import CommonPreprocessor

    keys = data_keys(data)
    read = CommonPreprocessor(
        train=False, token_type="bpe", token_list=keys["token_list"], bpemodel=keys["bpemodel"], text_cleaner=None
    )
    texts = {text for folder in (data.train, data.dev) for text in read_scp(folder / "text").values()}
    differ = sum(read("", {"text": text})["text"].tolist() != tokenizer.encode(text) for text in texts)
    yield _entry("tokenisation", f"of {len(texts):,} different texts, with other token ids", differ, 0)


def losses(
    settings: Mapping[str, Any], data: EspnetData, tokenizer: Tokenizer, store: FeatureStore
) -> Iterator[dict[str, Any]]:
    """The same weights in both models: loss of a dev batch in fp32, log-probabilities in float64 and fp32.

    The loss is that of a training step without dropout and SpecAugment: batch norm has the batch's statistics. From audio on it
    differs more: ESPnet computes features of the padded batch, so that the last frame of a shorter utterance reads zeros where
    ours reads its reflection.
    """
    audio, texts = read_scp(data.dev / "wav.scp"), read_scp(data.dev / "text")
    ids = list(audio)[:: max(1, len(audio) // UTTERANCES)][:UTTERANCES]
    waveforms = [torch.from_numpy(read_audio(audio[i])) for i in ids]
    samples = torch.tensor([len(w) for w in waveforms])
    speech = torch.nn.utils.rnn.pad_sequence(waveforms, batch_first=True)
    frames = torch.tensor([len(store[i]) for i in ids])
    batch = FrameSource(store, ids, frames.device).batch(ids, frames.tolist())
    tokens, token_lengths = pad_tokens([tokenizer.encode(texts[i]) for i in ids])
    for arm, own in settings.items():
        own = {**own, "model": {**own["model"], **NO_DROPOUT}}
        ours, theirs = pair_of_models(own, tokenizer.tokens, data.stats)
        # before the training step, which moves the running statistics of batch norm
        for dtype in (torch.float64, torch.float32):
            difference = log_prob_difference(ours.to(dtype), theirs.to(dtype), batch.to(dtype), frames)
            name = str(dtype).removeprefix("torch.")
            yield _entry(f"log-probabilities, {name}", f"{arm}, largest difference", difference, 1e-5)
        ours.float().train(), theirs.float().train()
        with torch.no_grad():
            loss = float(ours(batch, frames, tokens, token_lengths)["loss"])
            encoded, lengths = encode(theirs, batch, frames)
            other = float(theirs.ctc(encoded, lengths, tokens, token_lengths))
            whole = float(
                theirs(speech, samples, tokens.masked_fill(_beyond(tokens, token_lengths), -1), token_lengths)[0]
            )
        about = f"{arm}: {loss:.6f} for {len(ids)} utterances, relative difference"
        yield _entry("loss, fp32", about, abs(other / loss - 1), 1e-5)
        yield _entry("loss, fp32", f"{about}, from audio on", abs(whole / loss - 1), None)


def _beyond(tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.arange(tokens.shape[1]) >= lengths[:, None]


def encode(model: torch.nn.Module, batch: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """ESPnet's normalisation and encoder: log-mel (B, T, bands) and lengths (B,) to (B, T', width) and lengths."""
    encoded, lengths, _ = model.encoder(*model.normalize(batch.clone(), frames), ctc=model.ctc)
    return encoded[0] if isinstance(encoded, tuple) else encoded, lengths  # intermediate outputs come with it


@torch.no_grad()
def log_prob_difference(
    ours: torch.nn.Module, theirs: torch.nn.Module, batch: torch.Tensor, frames: torch.Tensor
) -> float:
    """Largest difference of a log-probability over the real frames of a batch of log-mel, in eval mode; infinite for other lengths."""
    expected, lengths = ours.eval().log_probs(batch, frames)
    encoded, other_lengths = encode(theirs.eval(), batch, frames)
    if lengths.tolist() != other_lengths.tolist():
        return np.inf
    real = torch.arange(expected.shape[1]) < lengths[:, None]
    return float((theirs.ctc.log_softmax(encoded) - expected)[real].abs().max())


def pair_of_models(
    settings: Mapping[str, Any], tokens: Sequence[str], stats: Path
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """One network in both code bases: our `ConformerCTC` with the weights of ESPnet's, and ESPnet's with those back again.

    Both directions of the map are walked: a second build of ESPnet's, of other initial weights, takes what ours gives back.
    """
    attention = settings["model"]["mixer"]["mixer"] == "attention"
    torch.manual_seed(0)
    first, theirs = (build_espnet(settings, list(tokens), stats) for _ in range(2))
    ours = model_config({**settings["model"], "vocab": len(tokens), "seed": settings["seed"]}).build()
    ours.load_state_dict(from_espnet(first.state_dict(), ours.state_dict(), attention=attention))
    missing, unexpected = theirs.load_state_dict(to_espnet(ours.state_dict(), attention=attention), strict=False)
    if unexpected or any(not name.startswith(FRONTEND) for name in missing):
        raise ValueError(f"weights that one track has and the other lacks: {[*missing, *unexpected]}")
    return ours, theirs


def learning_rates(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduler that ESPnet trains with beside our formula, over three times the warm-up."""
    training, updates = settings["training"], 100
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=float(training["learning_rate"]))
    keys = training_keys(settings, ANY, gpu=False, updates=updates)
    scheduler = scheduler_classes[keys["scheduler"]](optimizer, **keys["scheduler_conf"])
    rate = SCHEDULES[training.get("schedule", "warmup")]
    worst, steps = 0.0, min(3 * training["warmup"], training["epochs"] * updates)
    for step in range(1, steps + 1):
        epoch = (step - 1) // updates + 1
        ours = rate(step, epoch, training["learning_rate"], training["warmup"], training["epochs"])
        worst = max(worst, abs(optimizer.param_groups[0]["lr"] / ours - 1))
        optimizer.step()
        scheduler.step()
    return _entry("learning rate", f"updates 1 to {steps:,}, largest relative difference", worst, 1e-6)


def batches(settings: Mapping[str, Any], data: EspnetData) -> Iterator[dict[str, Any]]:
    """ESPnet's batches of an epoch beside ours: their content and, after an epoch's shuffle, their order; updates an epoch."""
    import tempfile

    keys = training_keys(settings, ANY, gpu=torch.cuda.is_available(), updates=1)
    with tempfile.TemporaryDirectory() as folder:
        shapes, _ = write_training_shapes(data, subsampling_of(settings["model"]), folder)
        theirs = list(
            NumElementsBatchSampler(keys["batch_bins"], [str(path) for path in shapes], sort_batch=keys["sort_batch"])
        )
        examples, units = read_shapes(shapes)
    ours = numel_batches(examples, units, keys["batch_bins"])
    np.random.RandomState(1 + settings["seed"]).shuffle(theirs)
    ordered = [tuple(example.id for example in batch) for batch in shuffled(ours, settings["seed"], 1)]
    differ = sum(a != b for a, b in zip(theirs, ordered, strict=False)) + abs(len(theirs) - len(ordered))
    yield _entry("batches", f"of {len(ours):,} in the order of epoch 1, different", differ, 0)
    updates = [len(x) // settings["training"]["accumulation"] for x in (ours, theirs)]
    yield _entry("updates an epoch", f"{updates[0]:,}, difference", abs(updates[0] - updates[1]), 0)
