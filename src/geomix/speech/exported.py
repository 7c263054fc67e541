"""A trained model for use elsewhere: a folder of its own and, on request, an ONNX graph with what it takes in written down."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.files import atomic_path, write_json, write_text
from geomix.mixers.own import source as own
from geomix.models.config.lengths import shortest
from geomix.speech.card import model_card
from geomix.speech.decoding import load_recogniser
from geomix.speech.features import FLOOR, HOP, N_FFT, N_MELS, WINDOW
from geomix.speech.manifest import SAMPLE_RATE

FILES = ("model.safetensors", "model.yaml", "tokenizer.model", "tokens.txt")
TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats, between model and graph."""
_LENGTHS = (57, 200, 611)


def export_model(folder: Path, out: Path, *, onnx: bool = False) -> float | None:
    """Copy what a model needs to load into `out`, with features.json and, where there is a record, a model card (README.md).

    onnx : also write model.onnx, features (1, frames, 80) to log-probabilities (1, frames', tokens) for any number of
        frames, and compare it with the model

    Returns the largest difference of a log-probability between model and graph; None without one.

    Raises
    ------
    UserError
        When the model cannot be loaded, `out` is its own folder, or the graph cannot be made or differs.
    """
    if out.exists() and out.samefile(folder):
        raise UserError(f"{out}: is the model's own folder: name another place")
    model, _ = load_recogniser(folder, "cpu")
    difference = None
    if onnx:
        with atomic_path(out / "model.onnx") as temporary:
            difference = _write_graph(model, temporary, folder)
    for name in (*FILES, own.FILE):
        if (folder / name).is_file():
            with atomic_path(out / name) as temporary:
                shutil.copyfile(folder / name, temporary)
    write_json(out / "features.json", front_end())
    if (folder / "record.json").is_file():
        write_text(out / "README.md", model_card(folder))
    return difference


def front_end() -> dict[str, Any]:
    """How features.log_mel makes what a model takes in; mean and deviation are inside the model."""
    return {
        "sample_rate": SAMPLE_RATE,
        "channels": 1,
        "n_fft": N_FFT,
        "window": "hann",
        "window_samples": WINDOW,
        "hop_samples": HOP,
        "centred": "reflect",
        "spectrum": "power",
        "mels": N_MELS,
        "mel_scale": "slaney, area-normalised, 0 to 8000 Hz",
        "floor": FLOOR,
        "logarithm": "natural",
    }


class _Whole(nn.Module):
    """One recording without padding: features (1, T, mels) to log-probabilities (1, T', vocab)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        lengths = torch.full((1,), features.shape[1], dtype=torch.int64)
        return self.model.log_probs(features, lengths)[0]


def _write_graph(model: nn.Module, path: Path, folder: Path) -> float:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise UserError(f"--onnx: {error.name} is not installed: pip install -r requirements-export.txt") from None
    model.requires_grad_(False)
    model._check_lengths = lambda features, lengths: None  # asks for the values of lengths, which a graph has none of
    whole = _Whole(model).eval()
    features = torch.randn(1, _LENGTHS[-1], N_MELS, generator=torch.Generator().manual_seed(0)) - 8
    frames = torch.export.Dim("frames", min=2 * shortest(model.config.subsampling), max=1 << 20)
    differences = []
    try:
        with torch.no_grad():
            torch.onnx.export(
                whole,
                (features,),
                dynamo=True,
                verbose=False,
                dynamic_shapes={"features": {1: frames}},
                input_names=["features"],
                output_names=["log_probs"],
            ).save(str(path))
            session = onnxruntime.InferenceSession(str(path))
            for length in _LENGTHS:
                found = session.run(None, {"features": features[:, :length].numpy()})[0]
                differences.append(float((whole(features[:, :length]) - torch.from_numpy(found)).abs().max()))
    except Exception as error:  # of torch's exporter or onnxruntime: a mixer that asks for lengths as numbers
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise UserError(
            f"{folder}: its mixer ({model.config.mixer['mixer']}) cannot be written as one graph for all lengths ({reason}): "
            "export it without --onnx"
        ) from None
    if not max(differences) <= TOLERANCE:
        raise UserError(
            f"{folder}: its graph gives log-probabilities that differ by {max(differences):g} from the model's: export it "
            "without --onnx"
        )
    return max(differences)
