"""Fine-tuning on the tiny checkpoint: projector and adapter learn, everything else stays, and what was learned is kept."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.models.granite import (
    attach_adapter,
    load_checkpoint,
    merge_attached,
    save_adapter,
    save_checkpoint,
    train_only,
)
from geomix.models.granite.adapter import adapted
from geomix.models.granite.checkpoint import load_model
from geomix.models.granite.features import batch_features, encoder_frames
from tests.models.granite.tiny_checkpoint import make_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("granite") / "tiny-speech")


def example(model, tokenizer):
    """Features of two recordings, the prompt of each with its text behind it, and where the text stands."""
    random = np.random.default_rng(0)
    waveforms = [torch.from_numpy((0.1 * random.standard_normal(n)).astype(np.float32)) for n in (8000, 6000)]
    features, lengths = batch_features(waveforms)
    text = [tokenizer.tokenizer.encode(words).ids for words in ("the speech", "format")]
    prompt = tokenizer.render()
    rows = [int(model.projector.rows(encoder_frames(len(w)))) for w in waveforms]
    lines = [tokenizer.encode(prompt, [n]) + words for n, words in zip(rows, text, strict=True)]
    longest = max(map(len, lines))
    ids = torch.tensor([[tokenizer.pad] * (longest - len(line)) + line for line in lines])
    mask = torch.tensor([[False] * (longest - len(line)) + [True] * len(line) for line in lines])
    target = torch.full_like(ids, -100)
    for row, words in enumerate(text):
        target[row, -len(words) :] = torch.tensor(words)
    return ids, features, lengths, mask, target


def loss(model, ids, features, lengths, mask, target):
    logits = model(ids, features, lengths, mask=mask)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten(), ignore_index=-100)


@pytest.mark.parametrize("adapter", ["train", "ignore"])
def test_projector_and_adapter_learn_and_nothing_else_moves(folder, tmp_path, adapter):
    """From the checkpoint's own adapter, and from a new one; then saved beside the weights, and merged into them."""
    torch.manual_seed(0)
    model, tokenizer = load_checkpoint(folder, adapter=adapter)
    if adapter == "ignore":
        given = example(model, tokenizer)
        before = loss(model, *given)
        attach_adapter(model, rank=4, alpha=8.0)
        assert torch.equal(loss(model, *given), before)  # B is zero: the function is unchanged at the start
    else:
        given = example(model, tokenizer)
        merged = load_model(folder)
        torch.testing.assert_close(loss(model, *given), loss(merged, *given), rtol=1e-5, atol=1e-5)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    learned = train_only(model, "projector", "adapter")
    optimizer = torch.optim.AdamW(learned, lr=3e-2)
    losses = []
    for _ in range(25):
        losses.append(loss(model, *given))
        optimizer.zero_grad()
        losses[-1].backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in learned)
        optimizer.step()
    assert losses[-1] < losses[0] - 1 and losses[-1] < losses[12] < losses[0]
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, start[name])}
    assert all(name.startswith("projector.") or ".lora_" in name for name in moved)
    assert {name for name in start if ".lora_B" in name} <= moved and any(n.startswith("projector.") for n in moved)

    trained = loss(model, *given)
    save_adapter(model, tmp_path / "adapter")
    again = merge_attached(model)
    torch.testing.assert_close(loss(again, *given), trained, rtol=1e-5, atol=1e-5)
    save_checkpoint(again, tmp_path / "merged")
    torch.testing.assert_close(loss(load_model(tmp_path / "merged"), *given), trained, rtol=1e-5, atol=1e-5)
    # the adapter's files beside the old weights, with the new projector, are the same model
    other = load_model(folder, adapter="ignore")
    other.projector.load_state_dict(again.projector.state_dict())
    save_checkpoint(other, tmp_path / "beside")
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        (tmp_path / "beside" / file).write_bytes((tmp_path / "adapter" / file).read_bytes())
    config = tmp_path / "beside" / "config.json"
    config.write_text(config.read_text().replace('"has_lora_adapter": false', '"has_lora_adapter": true'))
    torch.testing.assert_close(loss(load_model(tmp_path / "beside"), *given), trained, rtol=1e-5, atol=1e-5)


def test_every_part_can_be_trained(folder):
    model, tokenizer = load_checkpoint(folder)
    given = example(model, tokenizer)
    for part in ("encoder", "projector", "language_model"):
        learned = train_only(model, part)
        assert len(learned) == len(list(getattr(model, part).parameters()))
        gradients = torch.autograd.grad(loss(model, *given), learned, allow_unused=True)
        assert all(g is not None and g.isfinite().all() for g in gradients)


def test_bf16_weights_learn_with_an_adapter_in_fp32(folder):
    model, tokenizer = load_checkpoint(folder, dtype="bfloat16", adapter="train")
    given = example(model, tokenizer)
    learned = train_only(model, "adapter")
    assert {p.dtype for p in learned} == {torch.float32} and model.dtype == torch.bfloat16
    gradients = torch.autograd.grad(loss(model, *given), learned)
    assert all(g.isfinite().all() and g.dtype == torch.float32 for g in gradients)


def test_mistakes_are_named(folder, tmp_path):
    model = load_model(folder)
    with pytest.raises(UserError, match="'decoder' is no part"):
        train_only(model, "decoder")
    with pytest.raises(UserError, match="attach_adapter makes one"):
        train_only(model, "adapter")
    with pytest.raises(UserError, match="attach_adapter makes one"):
        save_adapter(model, tmp_path)
    with pytest.raises(UserError, match="'w_proj' is no attention projection"):
        attach_adapter(model, modules=("w_proj",))
    with pytest.raises(UserError, match="rank 0"):
        attach_adapter(model, 0)
    attach_adapter(model, 2)
    assert len(adapted(model)) == 4
    with pytest.raises(UserError, match="has an adapter"):
        attach_adapter(model, 2)
    with pytest.raises(ValueError, match="adapter for audio"):
        model(torch.tensor([[1, 2]]))
