"""Granite Speech checkpoints: a local folder to a model and back, every tensor accounted for.

Three naming schemes are read: that of the published 3.3 and 4.x files (canonical here, and what transformers writes), that of
the 3.2 files (`encoder.rnn_tr.K...`, from IBM's first module), and the names that transformers 5.x has in memory
(`model.encoder...`). Any missing, unexpected or misshapen tensor is a `UserError` that names it: a stock load of the 3.2
names in transformers leaves the encoder random with only a warning.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.files import write_json
from geomix.models.granite.adapter import adapted, attach_stored_adapter, merge_adapter
from geomix.models.granite.config import read_config
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.model import GraniteSpeech
from geomix.models.granite.prompt import PromptTokenizer
from geomix.models.granite.tensors import FLOATS, Files, name_3_2, write_tensors

ADAPTERS = ("merge", "train", "ignore")
NAMES = {"3.3": str, "3.2": name_3_2}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def _fill(module: nn.Module, tensors: dict[str, Tensor], folder: Path, prefix: str = "") -> None:
    """Give a module on the meta device its tensors, exactly those that it has."""
    wanted = {prefix + name: tensor.shape for name, tensor in module.state_dict().items()}
    problems = [f"{name} is missing" for name in wanted if name not in tensors]
    problems += [f"{name} is unexpected" for name in tensors if name not in wanted]
    problems += [
        f"{name} has shape {list(tensors[name].shape)}, the config gives {list(shape)}"
        for name, shape in wanted.items()
        if name in tensors and tensors[name].shape != shape
    ]
    types = {prefix + name: tensor.dtype for name, tensor in module.state_dict().items()}
    problems += [
        f"{name} is stored as {tensors[name].dtype}, quantised or of another kind"
        for name, kind in types.items()
        if name in tensors and tensors[name].is_floating_point() != kind.is_floating_point
    ]
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(
            f"{folder}: {'; '.join(problems[:3])}{more}: the files and config.json are not of one checkpoint"
        )
    module.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, assign=True)


def _read(folder: Path, prefix: str, dtype: str, device: str) -> dict[str, Tensor]:
    """Tensors by canonical name, in one floating type, on one device."""
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} of a checkpoint is not known: choose from {', '.join(DTYPES)}")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise UserError(f"device {device!r} is not known: choose cpu, cuda, cuda:1 or mps") from None
    found = {}
    for name, tensor in Files(folder).read(prefix):
        if tensor.is_floating_point() and tensor.dtype not in FLOATS:
            raise UserError(
                f"{folder}: {name} is stored as {tensor.dtype}, quantised: give float32, bfloat16 or float16 weights"
            )
        found[name] = tensor.to(place, DTYPES[dtype]) if tensor.is_floating_point() else tensor.to(place)
    return found


def load_model(
    folder: str | Path, *, dtype: str = "float32", device: str = "cpu", adapter: str = "merge"
) -> GraniteSpeech:
    """Load a checkpoint folder in eval mode.

    `adapter`: "merge" adds the LoRA of a 3.x checkpoint to the weights (a UserError if the config announces one and the folder
    has none: without it 3.x models are wrong for audio); "train" puts it beside them, to be trained (`adapter.train_only`);
    "ignore" leaves it out, for text without audio. UserError for any other word.
    """
    folder = Path(folder)
    if adapter not in ADAPTERS:
        raise UserError(f"adapter {adapter!r} is not known: choose one of {', '.join(ADAPTERS)}")
    config = read_config(folder)
    config.check_whole(folder / "config.json")
    tensors = _read(folder, "", dtype, device)
    head, table = tensors.get("language_model.lm_head.weight"), tensors.get("language_model.model.embed_tokens.weight")
    if config.tie_word_embeddings and head is not None:
        if table is not None and not torch.equal(head, table):
            raise UserError(
                f"{folder}: language_model.lm_head.weight differs from the embedding table, but config.json ties them: "
                "set tie_word_embeddings to false if the head is meant"
            )
        del tensors["language_model.lm_head.weight"]
    if config.has_lora_adapter and adapter == "merge":
        merge_adapter(tensors, config.text.num_hidden_layers, folder)
        config = config.merged()
    with torch.device("meta"):
        model = GraniteSpeech(config)
    _fill(model, tensors, folder)
    if config.has_lora_adapter and adapter == "train":
        attach_stored_adapter(model, folder)
    return model.eval()


def load_checkpoint(
    folder: str | Path, *, dtype: str = "float32", device: str = "cpu", adapter: str = "merge"
) -> tuple[GraniteSpeech, PromptTokenizer]:
    """`load_model`, and the folder's tokenizer with its prompt template."""
    tokenizer = PromptTokenizer.load(folder, read_config(folder))  # fails sooner than the weights
    return load_model(folder, dtype=dtype, device=device, adapter=adapter), tokenizer


def load_encoder(folder: str | Path, *, dtype: str = "float32", device: str = "cpu") -> GraniteEncoder:
    """Only the encoder with its CTC head, in eval mode: the rest of the checkpoint is not read."""
    folder = Path(folder)
    config = read_config(folder)
    with torch.device("meta"):
        encoder = GraniteEncoder(config.encoder)
    tensors = _read(folder, "encoder.", dtype, device)
    _fill(encoder, tensors, folder, "encoder.")
    return encoder.eval()


def save_checkpoint(
    model: GraniteSpeech, folder: str | Path, *, names: str = "3.3", max_shard_bytes: int = 5_000_000_000
) -> None:
    """Write config.json and safetensors (with an index when more than one) under the published names; whole or not at all.

    `names`: "3.3" (what transformers reads) or "3.2". UserError if the folder exists already.
    """
    folder = Path(folder)
    if folder.exists():
        raise UserError(f"{folder}: exists already: choose a new folder or remove it")
    if names not in NAMES:
        raise UserError(f"names {names!r} of tensors are not known: choose one of {', '.join(NAMES)}")
    if adapted(model):
        raise UserError(
            "the model has an adapter beside its weights: merge it (merge_attached) or save it alone (save_adapter)"
        )
    rename = NAMES[names]
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in model.state_dict().items():
        if shards[-1] and size + tensor.nbytes > max_shard_bytes:
            shards.append({})
            size = 0
        shards[-1][rename(name)] = tensor
        size += tensor.nbytes
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        config = {**model.config.to_json(), "dtype": str(model.dtype).removeprefix("torch.")}
        write_json(work / "config.json", config)
        files = ["model.safetensors"]
        if len(shards) > 1:
            files = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
            where = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
            total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
            write_json(work / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
        for file, shard in zip(files, shards, strict=True):
            write_tensors(shard, work / file)
        os.chmod(work, 0o755)
        os.replace(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
