"""Our settings as ESPnet's configuration: the same recipe under ESPnet's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomix.errors import UserError
from geomix.settings import E_BRANCHFORMER, training_settings
from geomix.training.averaging import Selection

if TYPE_CHECKING:
    from geomix.espnet_track.data import EspnetData

ENCODER = "geomix_conformer"
"""Name under which `encoder.register` enters our encoder among ESPnet's choices."""

SCHEDULER = "geomix_schedule"
"""Name under which `schedule.register` enters our schedules that ESPnet lacks."""

CRITERIA = {"dev_cer": ("valid", "cer_ctc", "min"), "dev_loss": ("valid", "loss", "min")}

# the encoder of ESPnet's egs2/librispeech_100/asr1/conf/tuning/train_asr_ctc_e_branchformer_e12_mlp1024_linear1024.yaml
E_BRANCHFORMER_CONF = {
    "output_size": 256,
    "attention_heads": 4,
    "attention_layer_type": "rel_selfattn",
    "pos_enc_layer_type": "rel_pos",
    "rel_pos_type": "latest",
    "cgmlp_linear_units": 1024,
    "cgmlp_conv_kernel": 31,
    "use_linear_after_conv": False,
    "gate_activation": "identity",
    "num_blocks": 12,
    "dropout_rate": 0.1,
    "positional_dropout_rate": 0.1,
    "attention_dropout_rate": 0.1,
    "input_layer": "conv2d",
    "layer_drop_rate": 0.0,
    "linear_units": 1024,
    "positionwise_layer_type": "linear",
    "use_ffn": True,
    "macaron_ffn": True,
    "merge_conv_kernel": 31,
}


def e_branchformer_parameters(vocab: int) -> int:
    """Exact size of ESPnet's E-Branchformer with a CTC layer of `vocab` units: 26,433,928 at 5,000."""
    return 26_433_928 + 257 * (vocab - 5000)


def subsampling_of(model: Mapping[str, Any]) -> int:
    """Frames in one encoder frame."""
    return 4 if model.get("architecture") == E_BRANCHFORMER else model["subsampling"]


def check_study(config: Mapping[str, Any]) -> None:
    """Refuse a study whose arms ESPnet cannot train, before anything runs; `UserError` names the arm and the setting."""
    gate = config["gate"] or {}
    arms = list(config["study"]["arms"]) if "espnet" in config["study"]["tracks"] else []
    arms += [anchor["arm"] for anchor in (gate, gate.get("fallback")) if anchor and anchor["track"] == "espnet"]
    for arm in dict.fromkeys(arms):
        settings = training_settings(config, arm, 0, "espnet")
        try:
            model_keys(settings)
            selection = Selection(config["training"]["keep_best"], config["training"]["best_by"])
            # whether there is a GPU is for the training job to see
            training_keys(settings, selection, gpu=True, updates=1)
        except UserError as error:
            raise UserError(f"config: arm {arm!r} on the track espnet: {error}") from None


def _encoder_conf(model: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Arguments of our encoder in ESPnet's frame; `UserError` names what ESPnet cannot do of `model`."""
    if model["batch_norm"] != "espnet":
        raise UserError(f"model.batch_norm {model['batch_norm']!r}: the track espnet has ESPnet's own: choose espnet")
    if replaced := model.get("replaced"):
        raise UserError(
            f"{', '.join(replaced)} cannot be replaced in ESPnet's encoder: run the arm on the track own alone"
        )
    mixer = dict(model["mixer"])
    if mixer.get("signs", "fixed") != "fixed":
        raise UserError(
            "mixer pair with learned signs: ESPnet's optimiser would decay them: run the arm on the track own alone"
        )
    return {
        "output_size": model["width"],
        "attention_heads": mixer.get("heads", 4) if mixer["mixer"] == "attention" else 1,
        "linear_units": model["ff_dim"],
        "num_blocks": model["blocks"],
        "dropout_rate": float(model["dropout"]),
        "positional_dropout_rate": float(model["positional_dropout"]),
        "attention_dropout_rate": float(model["attention_dropout"]),
        "input_layer": {4: "conv2d", 8: "conv2d8"}[model["subsampling"]],
        "normalize_before": True,
        "macaron_style": True,
        "rel_pos_type": "latest",
        "pos_enc_layer_type": "rel_pos",
        "selfattention_layer_type": "rel_selfattn",
        "activation_type": "swish",
        "use_cnn_module": True,
        "cnn_module_kernel": model["kernel"],
        "concat_after": False,
        "mixer": mixer,
        "mixer_seed": seed,
    }


def model_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ESPnet's configuration that says what is built: frontend, encoder, CTC alone.

    Parameters
    ----------
    settings : `geomix.settings.training_settings`; `UserError` names what ESPnet cannot do of them
    """
    model = settings["model"]
    intermediate = model.get("intermediate_ctc")
    if model.get("architecture") == E_BRANCHFORMER:
        encoder, conf = "e_branchformer", dict(E_BRANCHFORMER_CONF)
    elif "architecture" in model:
        raise UserError(
            f"architecture {model['architecture']!r} has no counterpart in the track espnet: run it on the track own"
        )
    else:
        encoder, conf = ENCODER, _encoder_conf(model, settings["seed"])
        if intermediate:
            conf["interctc_layer_idx"] = list(intermediate["blocks"])
            conf["interctc_use_conditioning"] = intermediate["self_conditioning"]
    return {
        "frontend": "default",
        "frontend_conf": {"fs": 16000, "n_fft": 512, "win_length": 400, "hop_length": 160, "n_mels": model["features"]},
        "encoder": encoder,
        "encoder_conf": conf,
        "decoder": None,
        "model": "espnet",
        "model_conf": {"ctc_weight": 1.0, "interctc_weight": float(intermediate["weight"]) if intermediate else 0.0},
        "init": None,
    }


def criterion_of(selection: Selection) -> tuple[str, str, str]:
    """ESPnet's name of what epochs are chosen by: phase, key, min; `UserError` for what its CTC models do not report."""
    if selection.best_by not in CRITERIA:
        raise UserError(
            f"training.best_by {selection.best_by!r}: ESPnet's CTC models report {' and '.join(CRITERIA)}: choose one"
        )
    return CRITERIA[selection.best_by]


def training_keys(settings: Mapping[str, Any], selection: Selection, *, gpu: bool, updates: int) -> dict[str, Any]:
    """The part that says how it is trained; `UserError` names a setting that ESPnet does not have.

    selection : the epochs that ESPnet keeps and averages; updates : optimiser steps of an epoch.
    """
    training = settings["training"]
    if training.get("max_updates") is not None:
        raise UserError("training.max_updates: ESPnet counts epochs alone: set it to null for the track espnet")
    if training.get("learning_rate_by_grade"):
        raise UserError("training.learning_rate_by_grade: ESPnet has one rate: set it to [] for the track espnet")
    criterion = criterion_of(selection)
    if training["precision"] == "bf16" and not gpu:
        raise UserError("training.precision bf16: ESPnet has autocast on a GPU alone: choose auto or fp32")
    return {
        "seed": settings["seed"],
        "max_epoch": training["epochs"],
        "patience": None,
        "accum_grad": training["accumulation"],
        "grad_clip": float(training["clip"]),
        "optim": training["optimizer"],
        "optim_conf": {"lr": float(training["learning_rate"]), "weight_decay": float(training["weight_decay"])},
        **_scheduler_keys(training, updates),
        "batch_type": "numel",
        "batch_bins": training["batch_bins"],
        # the order before an epoch's shuffle; with ESPnet's default, descending, the tracks would draw different orders
        "sort_batch": "ascending",
        # ESPnet averages nothing but the best when it has fewer epochs than it is asked for
        "keep_nbest_models": min(selection.keep_best, training["epochs"]),
        "best_model_criterion": [list(criterion)],
        "use_amp": gpu and training["precision"] != "fp32",
        **specaug_keys(settings["augmentation"]),
    }


def _scheduler_keys(training: Mapping[str, Any], updates: int) -> dict[str, Any]:
    schedule = training.get("schedule", "warmup")
    if schedule == "warmup":
        return {"scheduler": "warmuplr", "scheduler_conf": {"warmup_steps": training["warmup"]}}
    conf = {"schedule": schedule, "warmup": training["warmup"], "epochs": training["epochs"], "updates": updates}
    return {"scheduler": SCHEDULER, "scheduler_conf": conf}


def specaug_keys(augmentation: Mapping[str, Any]) -> dict[str, Any]:
    """SpecAugment; widths are exclusive upper bounds in both tracks."""
    a = augmentation
    warp = a["time_warp"] > 0
    bands = a["frequency_masks"] > 0 and a["frequency_width"] > 0
    times = a["time_masks"] > 0 and a["time_ratio"] > 0
    if not (warp or bands or times):
        return {"specaug": None, "specaug_conf": {}}
    conf: dict[str, Any] = {"apply_time_warp": warp, "apply_freq_mask": bands, "apply_time_mask": times}
    if warp:
        conf |= {"time_warp_window": a["time_warp"], "time_warp_mode": "bicubic"}
    if bands:
        conf |= {"freq_mask_width_range": [0, a["frequency_width"]], "num_freq_mask": a["frequency_masks"]}
    if times:
        conf |= {"time_mask_width_ratio_range": [0.0, float(a["time_ratio"])], "num_time_mask": a["time_masks"]}
    return {"specaug": "specaug", "specaug_conf": conf}


def data_keys(data: EspnetData) -> dict[str, Any]:
    """Where the audio, the texts and the tokens are. Every kind of tokenizer is a SentencePiece model, hence token_type bpe."""
    keys: dict[str, Any] = {
        "use_preprocessor": True,
        "token_type": "bpe",
        "bpemodel": str(data.tokenizer / "tokenizer.model"),
        "token_list": str(data.tokenizer / "tokens.txt"),
    }
    for mode, folder in (("train", data.train), ("valid", data.dev)):
        keys[f"{mode}_data_path_and_name_and_type"] = [
            [str(folder / "wav.scp"), "speech", "sound"],
            [str(folder / "text"), "text", "text"],
        ]
    return keys


QUIET = {"use_tensorboard": False, "use_matplotlib": False, "num_att_plot": 0, "log_level": "INFO"}


def training_config(
    settings: Mapping[str, Any],
    data: EspnetData,
    state: Path,
    train_shapes: Sequence[Path],
    selection: Selection,
    *,
    gpu: bool,
    batches: int,
    log_every: int,
) -> dict[str, Any]:
    """ESPnet's configuration of one training, whose experiment folder is `state`; it resumes there.

    `batches` are those of an epoch; `train_shapes` are those of `data.write_training_shapes`. `log_every` counts updates, ESPnet's log_interval batches.
    """
    return {
        **model_keys(settings),
        **training_keys(settings, selection, gpu=gpu, updates=batches // settings["training"]["accumulation"]),
        **data_keys(data),
        **QUIET,
        "normalize": "global_mvn",
        "normalize_conf": {"stats_file": str(data.stats)},
        "train_shape_file": [str(path) for path in train_shapes],
        "valid_shape_file": [str(data.dev / name) for name in ("speech_shape", "text_shape")],
        "output_dir": str(state),
        "ngpu": int(gpu),
        "num_workers": 4 if gpu else 0,
        "log_interval": max(1, log_every * settings["training"]["accumulation"]),
        "resume": True,
    }


def stats_config(data: EspnetData, mels: int, folder: Path) -> dict[str, Any]:
    """ESPnet's configuration of collect-stats, which leaves train/feats_stats.npz in `folder`; no arm has a part in it."""
    return {
        "frontend": "default",
        "frontend_conf": {"fs": 16000, "n_fft": 512, "win_length": 400, "hop_length": 160, "n_mels": mels},
        "encoder": "conformer",
        "encoder_conf": {"num_blocks": 1, "output_size": 8, "linear_units": 8, "attention_heads": 1},
        "decoder": None,
        "model": "espnet",
        "model_conf": {"ctc_weight": 1.0},
        "normalize": None,
        "specaug": None,
        **data_keys(data),
        **QUIET,
        "collect_stats": True,
        "train_shape_file": [str(data.train / "speech_shape")],
        "valid_shape_file": [str(data.dev / "speech_shape")],
        "output_dir": str(folder),
        "ngpu": 0,
        "num_workers": 0,
        "batch_size": 20,
    }
