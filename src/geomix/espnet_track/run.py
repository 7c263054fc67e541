"""The steps that run inside ESPnet's environment: `python -m geomix.espnet_track.run REQUEST ANSWER` (JSON files).

Each calls an entry point of ESPnet's own, with our encoder registered in the process: asr_train for collect-stats and training,
asr_inference for decoding.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import espnet2.bin.asr_inference
import numpy as np
import torch
import yaml
from espnet2.main_funcs.average_nbest_models import average_nbest_models
from espnet2.tasks.asr import ASRTask
from espnet2.train.reporter import Reporter

from geomix.errors import exit_with_sentence
from geomix.espnet_track import encoder, schedule
from geomix.espnet_track.data import read_scp, write_sorted_text
from geomix.files import read_json, write_json
from geomix.speech.tokenizer import Tokenizer
from geomix.training import devices


def main(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the step that `request` names and return its answer; `request["threads"]` is for torch."""
    torch.set_num_threads(request.get("threads", 1))
    devices.keep_freed_memory()
    encoder.register()
    schedule.register()
    values = {key: value for key, value in request.items() if key not in ("step", "threads")}
    return _step(request["step"])(**values)


def _step(name: str) -> Callable[..., dict[str, Any]]:
    """A step by its name, or a function of another room by `module:function`."""
    from geomix.espnet_track import agreement

    if ":" in name:
        module, function = name.split(":")
        return getattr(importlib.import_module(module), function)
    return {
        "stats": train_step,
        "train": training_step,
        "summary": _summary,
        "average": average_step,
        "decode": decode_step,
        "agreement": agreement.check,
    }[name]


def train_step(config: Mapping[str, Any]) -> dict[str, Any]:
    """ESPnet's asr_train (or its collect-stats) with a configuration of `espnet_track.settings`."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file, _whole_checkpoints():
        yaml.safe_dump(dict(config), file)
        file.flush()
        ASRTask.main(cmd=["--config", file.name])
    return {}


def training_step(config: Mapping[str, Any], diagnostics: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Train, or go on where `config["output_dir"]` stands; the answer is what the record needs (see `_summary`)."""
    _write_last_epoch(Path(config["output_dir"]))
    try:
        train_step(config)
    except FileNotFoundError as error:
        # ESPnet's average at the end of a training wants an epoch that an earlier selection did not keep: the epochs are all
        # trained, and our average step says what is missing
        if not (_ended(config) and str(error.filename or error).rstrip("'").endswith("epoch.pth")):
            raise
    return _summary(config, diagnostics)


def _write_last_epoch(folder: Path) -> None:
    """Write the weights of the checkpoint's epoch where a kill between ESPnet's saves of the two left them unwritten."""
    if not (folder / "checkpoint.pth").exists():
        return
    weights = folder / f"{_reporter(folder / 'checkpoint.pth').get_epoch()}epoch.pth"
    if not weights.exists():
        with _whole_checkpoints():
            torch.save(torch.load(folder / "checkpoint.pth", map_location="cpu", weights_only=True)["model"], weights)


def _ended(config: Mapping[str, Any]) -> bool:
    """Whether the training's last checkpoint is that of its last epoch."""
    path = Path(config["output_dir"]) / "checkpoint.pth"
    return path.exists() and _reporter(path).get_epoch() >= config["max_epoch"]


def _reporter(checkpoint: Path) -> Reporter:
    reporter = Reporter()
    reporter.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["reporter"])
    return reporter


def average_step(folder: str, criterion: list[str], keep: int) -> dict[str, Any]:
    """ESPnet's average of the `keep` best epochs of a finished training by `criterion` (phase, key, min), in its experiment folder."""
    with _whole_checkpoints():
        average_nbest_models(Path(folder), _reporter(Path(folder) / "checkpoint.pth"), [criterion], keep)
    return {}


class _whole_checkpoints:
    """torch.save writes beside its file and renames: a kill amid a save of ESPnet's leaves the checkpoint before it."""

    def __enter__(self) -> None:
        self._save = save = torch.save

        def whole(value: Any, file: Any, *arguments: Any, **options: Any) -> None:
            if not isinstance(file, str | os.PathLike):
                return save(value, file, *arguments, **options)
            temporary = f"{os.fspath(file)}.part"
            save(value, temporary, *arguments, **options)
            os.replace(temporary, file)

        torch.save = whole

    def __exit__(self, *_: object) -> None:
        torch.save = self._save


def _summary(config: Mapping[str, Any], diagnostics: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a finished training did, from its last checkpoint.

    epochs: {epoch: {train_loss, dev_loss, dev_cer (%), seconds, train_seconds, batches, waited}}; updates made;
    parameters; device; peak_memory; device_flops; packages; diagnostics, see `_diagnostics`.
    """
    from geomix.training.record import package_versions

    folder = Path(config["output_dir"])
    checkpoint = torch.load(folder / "checkpoint.pth", map_location="cpu", weights_only=True)
    device = torch.device("cuda" if config["ngpu"] else "cpu")
    epochs, before = {}, 0
    for epoch, stats in sorted(checkpoint["reporter"]["stats"].items()):
        train, valid = stats["train"], stats["valid"]
        batches = train["total_count"] - before
        before = train["total_count"]
        epochs[epoch] = {
            "train_loss": _number(train["loss"]),
            "dev_loss": _number(valid["loss"]),
            "dev_cer": _number(100 * valid["cer_ctc"]),
            "train_seconds": _seconds(train),
            "seconds": _seconds(train) + _seconds(valid),
            "batches": int(batches),
            "waited": _number(batches * train["iter_time"]),
        }
    args = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    parameters = sum(p.numel() for p in _build(args).parameters())
    return {
        "epochs": epochs,
        "updates": int(checkpoint["schedulers"][0]["last_epoch"]),
        "parameters": parameters,
        "device": devices.device_name(device),
        "peak_memory": devices.peak_memory(device),
        "device_flops": devices.device_flops(device),
        "packages": package_versions(),
        "diagnostics": _diagnostics(args, checkpoint["model"], **diagnostics) if diagnostics else None,
    }


def _seconds(stats: Mapping[str, Any]) -> float:
    return stats["time"]["__timedelta_seconds__"]  # as ESPnet's Reporter.state_dict writes a timedelta


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _build(args: Mapping[str, Any], seed: int | None = None) -> torch.nn.Module:
    """ESPnet's model of a configuration that it has written; with `seed`, with the weights that a training starts from."""
    import argparse

    from espnet2.torch_utils.set_all_random_seed import set_all_random_seed

    if seed is not None:
        set_all_random_seed(seed)
    return ASRTask.build_model(argparse.Namespace(**args))


def _diagnostics(
    args: Mapping[str, Any], end: Mapping[str, Any], model: dict[str, Any], features: str
) -> dict[str, Any]:
    """Pair diagnostics of our modules before and after ESPnet's training, on 16 dev utterances, as the own track has them.

    model : our `ConformerConfig` of the arm; features : our dev features (path without suffix).
    """
    from geomix.espnet_track.weights import from_espnet
    from geomix.models.conformer import ConformerConfig
    from geomix.models.diagnostics import pair_diagnostics, watched_utterances
    from geomix.speech.batching import FrameSource
    from geomix.speech.features import FeatureStore

    store = FeatureStore.open(features)
    config = ConformerConfig.from_dict(model)
    ids = watched_utterances(config.build(), store.lengths)
    if not ids:
        return {"utterances": [], "start": [], "end": []}
    lengths = torch.tensor([store.lengths[i] for i in ids])
    batch = FrameSource(store, ids, lengths.device).batch(ids, lengths.tolist()), lengths
    attention = config.mixer["mixer"] == "attention"
    found: dict[str, Any] = {"utterances": ids}
    for when, weights in (("start", _build(args, args["seed"]).state_dict()), ("end", end)):
        ours = config.build()
        ours.load_state_dict(from_espnet(weights, ours.state_dict(), attention=attention))
        found[when] = pair_diagnostics(ours.eval(), *batch)
    return found


def decode_step(model: str, config: str, tokenizer: str, sets: list[dict[str, str]], gpu: bool) -> dict[str, Any]:
    """Decode with ESPnet: its asr_inference at beam 1 (a prefix search), and argmax-collapse of its model's CTC output.

    model, config : ESPnet's weights (.pth) and configuration; tokenizer : folder of ours
    sets : {"data": Kaldi folder with wav.scp, "prefix": Kaldi text to write, "argmax": another} for each set
    """
    units = Tokenizer.load(tokenizer)
    network, args = ASRTask.build_model_from_file(config, model, "cuda" if gpu else "cpu")
    network.eval()
    for each in sets:
        scp = Path(each["data"]) / "wav.scp"
        ids = list(read_scp(scp))
        with tempfile.TemporaryDirectory(prefix="geomix-espnet-") as folder:
            options = Path(folder) / "decode.yaml"
            options.write_text("lm_weight: 0.0\nctc_weight: 1.0\nbeam_size: 1\n")
            espnet2.bin.asr_inference.main(
                cmd=["--config", str(options), "--ngpu", str(int(gpu)), "--log_level", "WARNING", "--num_workers", "0"]
                + ["--data_path_and_name_and_type", f"{scp},speech,sound", "--key_file", str(scp)]
                + ["--asr_train_config", config, "--asr_model_file", model, "--output_dir", f"{folder}/out"]
            )
            found = Path(folder, "out", "1best_recog")
            tokens = read_scp(found / "token_int") if (found / "token_int").exists() else {}
        # an empty hypothesis has no token
        prefix = {i: units.decode(_real(map(int, line.split()), units)) for i, line in tokens.items()}
        write_sorted_text(each["prefix"], prefix, ids)
        write_sorted_text(each["argmax"], dict(_argmax(network, args, scp, units, gpu)), ids)
    return {"utterances": len(ids)}


def _real(ids: Iterator[int], units: Tokenizer) -> list[int]:
    """Tokens without blank, start and end."""
    return [i for i in ids if units.blank_id < i < units.sos_eos_id]


def _argmax(network: Any, args: Any, scp: Path, units: Tokenizer, gpu: bool) -> Iterator[tuple[str, str]]:
    """Best label of each frame of ESPnet's own encoder, collapsed: (id, text)."""
    from geomix.speech.decoding import collapse

    loader = ASRTask.build_streaming_iterator(
        [(str(scp), "speech", "sound")],
        dtype="float32",
        batch_size=1,
        key_file=str(scp),
        num_workers=0,
        preprocess_fn=ASRTask.build_preprocess_fn(args, False),
        collate_fn=ASRTask.build_collate_fn(args, False),
        inference=True,
    )
    for ids, batch in loader:
        with torch.no_grad():
            encoded, lengths = network.encode(**{k: v.cuda() if gpu else v for k, v in batch.items()})
            encoded = encoded[0] if isinstance(encoded, tuple) else encoded
            labels = network.ctc.argmax(encoded)
        for i, path, length in zip(ids, labels.tolist(), lengths.tolist(), strict=True):
            yield i, units.decode(_real(iter(collapse(path[:length])), units))


if __name__ == "__main__":
    with exit_with_sentence():
        write_json(sys.argv[2], main(read_json(sys.argv[1])))
