"""What the pair mixers of a model see: angles between partners, thin pairs, gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct
from geomix.mixers import Frames, PairMixer
from geomix.models.conformer import ConformerCTC

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def watched_utterances(model: ConformerCTC, frames: Mapping[str, int], most: int = 16) -> list[str]:
    """Ids of the utterances that a training's diagnostics look at: the first `most` of those with an output frame.

    frames : log-mel frames by id
    """
    ids = sorted(frames)
    outputs = model.subsampled_lengths(torch.tensor([frames[i] for i in ids], dtype=torch.long)).tolist()
    return [i for i, output in zip(ids, outputs, strict=True) if output >= 1][:most]


@torch.no_grad()
def pair_diagnostics(model: ConformerCTC, features: Tensor, lengths: Tensor) -> list[dict[str, Any]]:
    """Diagnostics of every block that holds a `PairMixer`, on one batch, in eval mode; [] for other arms.

    Each entry: `block`; `sine_quantiles` of the sine of the angle between the partners of all valid pairs;
    `thin_share`, the share of pairs whose product is shorter than min_sine |a| |b| and so is divided by that instead;
    `mean_gate`, the mean of alpha over real frames (1 keeps the frame, 0 takes the mixture); of learned signs `signs`, the
    s_ij of all coordinates i < j in lexicographic order.
    """
    found: list[dict[str, Any]] = []

    def watch(block: int):
        def hook(mixer: PairMixer, arguments: tuple[Tensor, Frames], output: Tensor) -> None:
            found.append({"block": block, **mixer_diagnostics(mixer, *arguments)})

        return hook

    handles = [
        block.mixer.register_forward_hook(watch(number))
        for number, block in enumerate(getattr(model, "blocks", ()))  # another architecture has no mixer slot
        if isinstance(block.mixer, PairMixer)
    ]
    training = model.training
    try:
        if handles:
            model.eval().encode(features, lengths)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return found


def mixer_diagnostics(mixer: PairMixer, x: Tensor, frames: Frames) -> dict[str, Any]:
    """The same for one mixer: x (B, T, width) is its input."""
    z = mixer.reduce(x).float()
    wedge = PairProduct.wedge(z.shape[-1])
    sines, thin = [], []
    for offset in mixer.offsets:
        valid = frames.mask[:, :-offset] & frames.mask[:, offset:]
        a, b = z[:, :-offset][valid], z[:, offset:][valid]
        scale = (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(torch.finfo(z.dtype).tiny)
        sines.append(wedge.norm(a, b) / scale)
        thin.append(mixer.product.norm(a, b) < mixer.min_sine * scale)
    sine, thin = torch.cat(sines), torch.cat(thin)
    gate = mixer.gate_value(x, mixer.mixed(x, frames).to(x.dtype))[frames.mask]
    if len(sine) == 0:
        quantiles = dict.fromkeys(map(str, QUANTILES))
    else:
        values = torch.quantile(_thinned(sine), torch.tensor(QUANTILES, device=sine.device))
        quantiles = {str(q): float(v) for q, v in zip(QUANTILES, values, strict=True)}
    signs = {} if mixer.signs is None else {"signs": [round(s, 5) for s in mixer.signs.tolist()]}
    return {
        "sine_quantiles": quantiles,
        "thin_share": float(thin.float().mean()) if len(thin) else None,
        "mean_gate": float(gate.mean()),
        **signs,
    }


def _thinned(values: Tensor, most: int = 1_000_000) -> Tensor:
    """At most `most` of the values, evenly spaced: torch.quantile refuses more than 16 million."""
    return values[:: -(-len(values) // most)]
