"""A trained model as a folder: model.safetensors and model.yaml, and nothing else is needed to load it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
import yaml

from geomix.errors import UserError
from geomix.files import write_text
from geomix.models.architectures import model_config
from geomix.models.conformer import ConformerCTC
from geomix.tensors import load_state, state_once, write_tensors


def save_model(model: ConformerCTC, folder: str | os.PathLike, tokenizer: str = "tokenizer.model") -> None:
    """Write model.safetensors and model.yaml into `folder`; `tokenizer` is the name of the tokenizer file beside them."""
    folder = Path(folder)
    write_tensors(folder / "model.safetensors", state_once(model))
    about = {"model": model.config.to_dict(), "tokenizer": tokenizer}
    write_text(folder / "model.yaml", yaml.safe_dump(about, sort_keys=False))


def load_model(folder: str | os.PathLike, device: torch.device | str = "cpu") -> ConformerCTC:
    """The model that `save_model` wrote, in eval mode on `device`; nothing but the folder is needed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        about = yaml.safe_load((folder / "model.yaml").read_text(encoding="utf-8"))
        state = load_file(folder / "model.safetensors", device=str(device))
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or folder / 'model.safetensors'}: no such file; give the folder of a trained model"
        ) from None
    except (yaml.YAMLError, SafetensorError, UnicodeDecodeError) as error:
        raise UserError(
            f"{folder}: its model.yaml or model.safetensors is damaged ({error}); make the model again"
        ) from None
    if not isinstance(about, Mapping) or "model" not in about:
        raise UserError(f"{folder / 'model.yaml'}: no entry `model`; make the model again")
    config = model_config(about["model"])
    with torch.device("meta"):
        model = config.build()
    try:
        load_state(model, state, assign=True)
    except RuntimeError as error:
        raise UserError(
            f"{folder}: model.safetensors does not fit model.yaml ({str(error).splitlines()[-1].strip()}); make the model again"
        ) from None
    return model.eval().requires_grad_(True)
