"""Measures the pieces of the speed probe. CPU, CUDA and MPS; on CUDA under bf16 autocast, as trainings run there, and with the
steps replayed as CUDA graphs, so that launches are not what is measured.

Beside each time stand its matrix products in FLOP, the bytes that any implementation of that form moves, and the fraction of
the floor: the larger of FLOP / measured matrix rate and bytes / measured copy rate, divided by the time.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.benchmarks.clock import Timing, captured, measure, prepared
from geomix.benchmarks.forms import Form, require
from geomix.benchmarks.mixer import check_forms, pair_forms
from geomix.benchmarks.speed.pieces import OFFSETS, Sizes
from geomix.benchmarks.speed.work import block_work
from geomix.errors import UserError
from geomix.files import write_json
from geomix.kernels.linear_cross_entropy import linear_cross_entropy, naive
from geomix.mixers import Frames
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.ctc import ctc_loss
from geomix.models.flops import macs_per_frame, train_flops_per_audio_second
from geomix.models.transformer_lm import Block, LanguageModelConfig, TransformerLM, train_flops_per_token
from geomix.training import devices
from geomix.training.cpu import cpu_name
from geomix.training.record import code_version, package_versions


@dataclass(frozen=True)
class _Probe:
    """Where and at what sizes a piece is measured, `budget` seconds a row."""

    device: torch.device
    sizes: Sizes
    budget: float

    def time(self, calls: Mapping[Any, Callable[[], Any]], most: int = 50) -> dict[Any, Timing]:
        """Competitors by turns."""
        return measure(calls, seconds=self.budget, least=2, most=most, warm_up=1, device=self.device)

    def step(self, call: Callable[[], Any]) -> Timing:
        """One call, as a graph where there are graphs."""
        return self.time({"step": captured(call, self.device)})["step"]

    def autocast(self) -> torch.autocast:
        """bf16 on CUDA, nothing elsewhere; without the cache of casts, which a graph must not hold on to."""
        cuda = self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=cuda, cache_enabled=False)


def measure_piece(
    piece: str, out: str | Path, *, threads: int = 1, device: str = "auto", budget: float = 15.0, sizes: Sizes | None = None
) -> None:  # fmt: skip
    """Measure one of `sizes.pieces` and write its rows, with where they come from, to the JSON file `out`.

    `budget` is the measuring time in seconds of one row; at least two rounds are taken after the warm-up.
    """
    sizes = sizes or Sizes()
    if piece not in sizes.pieces:
        raise UserError(f"piece {piece!r} of the speed probe is not known: choose one of {', '.join(sizes.pieces)}")
    probe = _Probe(prepared(device, threads), sizes, budget)
    kind, _, rest = piece.partition("-")
    of_kind = {"block": _block, "step": _step, "encoder": _encoder, "ctc": _ctc, "language": _language}[kind]
    rows = of_kind(probe, *([rest] if rest else []))
    rates = machine_rates(probe.device)
    for row in rows:
        floors = [row[key] / rates[rate] for key, rate in (("flop", "flops"), ("bytes", "bytes")) if row.get(key)]
        row |= {"floor_s": max(floors), "of_floor": max(floors) / row["seconds"]}
    record = {
        **code_version(),
        "device": devices.device_name(probe.device),
        "device_type": probe.device.type,
        "cpu": cpu_name(),
        "threads": threads,
        "packages": package_versions(),
        "rates": rates,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(out, {"piece": piece, "rows": rows, "record": record})


@lru_cache(maxsize=1)
def machine_rates(device: torch.device) -> dict[str, Any]:
    """Rates: flops (matrix products, FLOP/s, what `training.devices` measures or the data sheet states) and bytes/s of a copy."""
    rate = devices.device_flops(device)
    a = torch.ones(1 << 26, device=device)  # 256 MB: beyond any cache but a server's L3
    b = torch.empty_like(a)
    seconds = measure({"copy": lambda: b.copy_(a)}, seconds=1.0, device=device)["copy"].seconds
    return {"flops": rate["value"], "flops_source": rate["source"], "bytes": 2 * 4 * a.numel() / seconds}


def _row(part: str, what: str, form: str, length: int, timing: Timing, **rest: Any) -> dict[str, Any]:
    times = {"seconds": timing.seconds, "spread": timing.spread}
    return {"part": part, "what": what, "form": form, "length": length} | times | rest


def _block(probe: _Probe, length: str) -> list[dict[str, Any]]:
    """Forward and backward of the causal block and of its mixer alone, in every form that runs here, once they agree."""
    sizes, steps, low = probe.sizes, int(length), probe.device.type == "cuda"
    x = torch.randn(sizes.tokens // steps, steps, sizes.width, device=probe.device, requires_grad=True)
    upstream, agrees, calls = torch.randn_like(x), {}, {}
    pair = {"mixer": "pair", "kind": "wedge", "rank": sizes.rank, "offsets": list(OFFSETS)}
    both = (sizes.arms["attention"]["mixer"], pair)
    attention, block = (block_of(mixer, sizes).to(x.device).train() for mixer in both)
    frames = Frames.of(torch.full((len(x),), steps), steps, device=x.device)
    for what, ours, other in (("mixer", block.mixer, attention.mixer), ("block", block, attention)):
        agrees[what] = check_forms(ours, x, upstream, low)
        require(agrees[what], f"{what}, length {length}")

        def attend(module: nn.Module = other) -> Tensor:
            with probe.autocast():
                return module(x, frames)

        forms = {"attention": Form(attend, [x, *other.parameters()], upstream), **pair_forms(ours, x, upstream, low)}
        calls |= {(form, what): captured(way.backward, probe.device) for form, way in forms.items()}
    rows = []
    for (form, what), timing in probe.time(calls).items():
        found = agrees[what].get(form)
        work = block_work(form, steps, 2 if low else 4, sizes)[what]
        compared = {"agrees": bool(found), "difference": found.relative} if found else {}
        rows.append(_row("block", what, form, steps, timing, **compared, **work))
    return rows


def block_of(mixer: Mapping[str, Any], sizes: Sizes) -> Block:
    """The language model's block (causal) around a mixer."""
    torch.manual_seed(0)
    return Block(LanguageModelConfig(vocab=2, blocks=1, width=sizes.width, ff_dim=sizes.ff_dim, mixer=mixer), 0)


def _conformer(
    arm: str, batch: int, seconds: float, probe: _Probe
) -> tuple[ConformerConfig, ConformerCTC, Tensor, Tensor]:
    """An arm's configuration and model, and noise around a log-mel's mean (batch, frames, features) with its lengths."""
    torch.manual_seed(0)
    config = ConformerConfig.from_dict({"vocab": probe.sizes.vocabulary, **probe.sizes.arms[arm]})
    model = ConformerCTC(config).to(probe.device)
    model.set_normalisation(torch.full((config.features,), -5.0), torch.full((config.features,), 4.0))
    frames = round(100 * seconds) + 1
    features = torch.randn(batch, frames, config.features, device=probe.device) * 4 - 5
    return config, model, features, torch.full((batch,), frames)


def _step(probe: _Probe, arm: str) -> list[dict[str, Any]]:
    """Forward and backward of the 15-block Conformer-CTC on 16 utterances of 12.7 s."""
    sizes, device = probe.sizes, probe.device
    devices.keep_freed_memory()
    config, model, features, lengths = _conformer(arm, sizes.utterances, sizes.seconds, probe)
    tokens = torch.randint(1, sizes.vocabulary - 1, (sizes.utterances, sizes.units), device=device)
    token_lengths = torch.full((sizes.utterances,), sizes.units, device=device)
    parameters = list(model.train().parameters())

    def call() -> None:
        with probe.autocast():
            loss = model(features, lengths, tokens, token_lengths)["loss"]
        torch.autograd.grad(loss, parameters, allow_unused=True)  # no_mixer keeps the norm of the mixer that it lacks

    timing, audio = probe.step(call), sizes.utterances * sizes.seconds
    return [_row(
        "step", f"training step, {sizes.utterances} x {sizes.seconds:g} s", arm, features.shape[1], timing,
        flop=audio * train_flops_per_audio_second(config, sizes.seconds),
        real_time_factor=timing.seconds / audio, peak_bytes=devices.peak_memory(device),
    )]  # fmt: skip


def _encoder(probe: _Probe, rest: str) -> list[dict[str, Any]]:
    """Inference of the whole encoder with its CTC head on one recording: real-time factor and peak memory."""
    arm, audio = rest.rsplit("-", 1)[0], float(rest.rsplit("-", 1)[1])
    config, model, features, lengths = _conformer(arm, 1, audio, probe)
    model.eval()
    encoded, before = int(model.subsampled_lengths(lengths)), devices.peak_memory(probe.device)
    with torch.inference_mode(), probe.autocast():
        # a graph would hold its memory: the plain call is timed on every device
        timing = probe.time({arm: lambda: model.log_probs(features, lengths)}, most=10)[arm]
    return [_row(
        "encoder", f"inference, {audio:g} s of audio", arm, encoded, timing, flop=2.0 * encoded * macs_per_frame(config, encoded),
        real_time_factor=timing.seconds / audio, peak_bytes=devices.peak_memory(probe.device), before_bytes=before,
    )]  # fmt: skip


def _ctc(probe: _Probe) -> list[dict[str, Any]]:
    """CTC loss and gradient of 16 utterances here in fp32 against the CPU's in float64, and its time."""
    sizes, frames, generator = probe.sizes, 317, torch.Generator().manual_seed(0)
    logits = torch.randn(sizes.utterances, frames, sizes.vocabulary, generator=generator)
    tokens = torch.randint(1, sizes.vocabulary - 1, (sizes.utterances, sizes.units), generator=generator)
    lengths, token_lengths = (torch.full((sizes.utterances,), n) for n in (frames, sizes.units))
    reference = logits.double().requires_grad_()
    losses = F.ctc_loss(
        reference.log_softmax(-1).transpose(0, 1), tokens, lengths, token_lengths, reduction="none", zero_infinity=True
    )
    want = losses.sum() / sizes.utterances
    (want_gradient,) = torch.autograd.grad(want, reference)
    here = logits.to(probe.device).requires_grad_()
    where = [x.to(probe.device) for x in (lengths, tokens, token_lengths)]

    def call() -> tuple[Tensor, Tensor]:
        loss = ctc_loss(here.log_softmax(-1), *where)
        return loss, torch.autograd.grad(loss, here)[0]

    loss, gradient = call()
    timing = probe.step(call)
    return [_row(
        "ctc", f"CTC loss and gradient, {sizes.utterances} x {frames} frames, {sizes.vocabulary:,} units", "native", frames, timing,
        bytes=4.0 * 5 * logits.numel(),  # logits in, log-probabilities out and in, gradient out; logits again
        loss_difference=abs(loss.item() - want.item()), loss=want.item(),
        gradient_difference=float((gradient.cpu().double() - want_gradient).abs().max()),
    )]  # fmt: skip


def _language(probe: _Probe, form: str) -> list[dict[str, Any]]:
    """A full-size language-model step (32 blocks of 128, 30,522 pieces) with the logits at once or in chunks."""
    torch.set_flush_denormal(True)  # as the trainer does
    config = LanguageModelConfig(vocab=30_522)
    model = TransformerLM(config).to(probe.device).train()
    tokens = torch.randint(config.vocab, (32, config.positions + 1), device=probe.device)
    loss_of = {"naive": naive.linear_cross_entropy, "chunked": linear_cross_entropy}[form]
    parameters = list(model.parameters())

    def call() -> None:
        with probe.autocast():
            hidden = model.hidden(tokens[:, :-1]).flatten(0, 1)
            loss = loss_of(hidden, model.tokens.weight, tokens[:, 1:].flatten())
        torch.autograd.grad(loss, parameters)

    timing, count = probe.step(call), 32 * config.positions
    return [_row(
        "language", "Transformer 12.6 M training step, 4,096 tokens", form, config.positions, timing,
        flop=count * train_flops_per_token(config), tokens_per_second=count / timing.seconds,
        hours_of_30_epochs=30 * 2.3e6 / count * timing.seconds / 3600, peak_bytes=devices.peak_memory(probe.device),
    )]  # fmt: skip
