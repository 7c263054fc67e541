"""A training step of each arm, compared with the processor's, and a short training that learns."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from geomix.models.conformer import ConformerConfig, ConformerCTC
from tests.gpu.report import Row

ARMS = {
    "attention": {"mixer": "attention", "heads": 4},
    "grassmann": {"mixer": "pair", "kind": "wedge", "rank": 32},
    "symmetric": {"mixer": "pair", "kind": "symmetric", "rank": 32},
    "no_mixer": {"mixer": "none"},
    "causal": {"mixer": "pair", "kind": "wedge", "rank": 32, "two_sided": False},
    "one_offset": {"mixer": "pair", "kind": "wedge", "rank": 32, "one_offset_per_block": True},
    "signed": {"mixer": "pair", "kind": "signed", "rank": 32},
    "geometric": {"mixer": "pair", "kind": "geometric", "rank": 32},
    "blocked": {"mixer": "blocked_attention", "heads": 4, "context": 50},
}
VOCABULARY = 12


def model_of(arm: str, width: int, blocks: int, heads: int = 4) -> ConformerCTC:
    """A small Conformer of an arm, without dropout, from a fixed seed."""
    torch.manual_seed(0)
    config = ConformerConfig(
        vocab=VOCABULARY, blocks=blocks, width=width, heads=heads, ff_dim=2 * width, kernel=15, mixer=ARMS[arm], dropout=0.0,
        positional_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return ConformerCTC(config).train()


def batch_of(count: int, seed: int, device: torch.device):
    """Utterances whose tokens can be heard: each token is 24 frames of a pattern of its own, in noise."""
    patterns = torch.randn(VOCABULARY, 80, generator=torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 9, (count,), generator=draw)
    tokens = torch.randint(2, VOCABULARY - 1, (count, 8), generator=draw)
    features = torch.zeros(count, 8 * 24, 80)
    for row, length in enumerate(lengths.tolist()):
        features[row, : 24 * length] = patterns[tokens[row, :length]].repeat_interleave(24, 0)
    features += 0.3 * torch.randn(features.shape, generator=draw)
    mask = torch.arange(8) < lengths.unsqueeze(1)
    return [x.to(device) for x in (features, 24 * lengths, tokens * mask, lengths)]


def step(model: ConformerCTC, batch, low: bool) -> torch.Tensor:
    """The loss, with its gradients in the parameters."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(batch[0].device.type, torch.bfloat16, enabled=low):
        loss = model(*batch)["loss"]
    loss.backward()
    return loss.detach()


def steps(device: torch.device, quick: bool) -> Iterator[Row]:
    """Each arm: loss and gradient norm in fp32 beside the processor's, all gradients finite in bf16, and a step's time and memory."""
    width, blocks = (32, 1) if quick else (256, 4)
    for arm in ARMS:
        here, there = model_of(arm, width, blocks), model_of(arm, width, blocks).to(device)
        batch = batch_of(2 if quick else 8, 0, torch.device("cpu"))
        there_batch = [x.to(device) for x in batch]
        expected, found = step(here, batch, False), step(there, there_batch, False)
        yield Row("training step", f"{arm}: loss in fp32", abs(found.item() / expected.item() - 1), 1e-4)
        norms = [
            torch.stack([p.grad.double().norm().cpu() for p in m.parameters() if p.grad is not None]).norm()
            for m in (here, there)
        ]
        yield Row("training step", f"{arm}: gradient norm in fp32", abs(norms[1].item() / norms[0].item() - 1), 1e-2)
        if device.type == "cuda":
            loss = step(there, there_batch, True)
            finite = all(p.grad.isfinite().all() for p in there.parameters() if p.grad is not None)
            yield Row("training step", f"{arm}: loss in bf16", abs(loss.item() / expected.item() - 1), 5e-2)
            yield Row("training step", f"{arm}: gradients in bf16 are numbers", float(not finite), 0.0)
            large = batch_of(64, 1, device)
            step(there, large, True)
            torch.cuda.reset_peak_memory_stats(device)
            torch.cuda.synchronize(device)
            begun = time.perf_counter()
            for _ in range(5):
                step(there, large, True)
            torch.cuda.synchronize(device)
            spent = (time.perf_counter() - begun) / 5 * 1e6
            peak = torch.cuda.max_memory_allocated(device) / 1e9
            yield Row("training step", f"{arm}: 64 utterances, bf16", microseconds=spent, note=f"peak {peak:.2f} GB")


def learns(device: torch.device, quick: bool) -> Iterator[Row]:
    """A short training: the loss falls to a fraction of its start, in the types that trainings use on the device."""
    for arm in ("grassmann",) if quick else ("grassmann", "attention", "symmetric"):
        model = model_of(arm, 32 if quick else 128, 1 if quick else 2).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        updates, low = (40, False) if quick else (300, device.type == "cuda")
        first = last = None
        for number in range(updates):
            loss = step(model, batch_of(8 if quick else 32, 10 + number, device), low)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            first, last = first or loss.item(), loss.item()
        yield Row(
            "short training", f"{arm}: loss after {updates} updates over its start", last / first, 0.7 if quick else 0.1,
            note=f"{first:.2f} to {last:.2f}",
        )  # fmt: skip
