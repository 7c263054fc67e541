"""Greedy and beam search over a `GraniteSpeech` model.

Beam search has the semantics of transformers 4.57.1 (`early_stopping=False`): 2 * beams candidates a step, of which those
among the best `beams` may finish; a hypothesis scores its summed log-probability / (generated tokens ** length_penalty),
the end symbol counted; the search of an item ends when its best running beam cannot beat its worst finished one.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from geomix.errors import UserError
from geomix.models.granite.model import GraniteSpeech

_NEVER = -1.0e9


def most_likely(logits: Tensor) -> Tensor:
    """argmax over the last axis; UserError for NaN, whose argmax would read as the first symbol (the blank, the end)."""
    if bool(logits.isnan().any()):
        raise UserError(
            f"the model's output is no number in {str(logits.dtype).removeprefix('torch.')}: decode in float32 or bfloat16, or "
            "fetch the checkpoint again"
        )
    return logits.argmax(-1)


@torch.inference_mode()
def greedy_search(
    model: GraniteSpeech, embeddings: Tensor, mask: Tensor | None, *, end: Collection[int], max_new_tokens: int
) -> list[list[int]]:
    """embeddings (batch, tokens, width), mask (batch, tokens) bool with padding on the left -> new token ids of each item.

    Generation of an item ends at a symbol of `end`, which is left out, or after `max_new_tokens`.
    """
    batch, tokens, _ = embeddings.shape
    decoder, cache = model.language_model, model.language_model.new_cache(batch, tokens + max_new_tokens)
    logits = decoder(embeddings, mask, cache, last_only=True)[:, -1]
    out: list[list[int]] = [[] for _ in range(batch)]
    open_items = set(range(batch))
    for step in range(max_new_tokens):
        best = most_likely(logits)
        for item, token in enumerate(best.tolist()):
            if item in open_items:
                if token in end:
                    open_items.discard(item)
                else:
                    out[item].append(token)
        if not open_items or step + 1 == max_new_tokens:
            break
        logits = decoder(model.language_model.model.embed_tokens(best[:, None]), None, cache)[:, -1]
    return out


@torch.inference_mode()
def beam_search(
    model: GraniteSpeech,
    embeddings: Tensor,
    mask: Tensor | None,
    *,
    end: Collection[int],
    max_new_tokens: int,
    beams: int,
    length_penalty: float = 1.0,
) -> tuple[list[list[int]], list[float]]:
    """As `greedy_search` with `beams` hypotheses an item; returns the best hypothesis of each item and its score."""
    batch, tokens, _ = embeddings.shape
    device = embeddings.device
    decoder, cache = model.language_model, model.language_model.new_cache(batch, tokens + max_new_tokens)
    logits = decoder(embeddings, mask, cache, last_only=True)[:, -1]  # once an item, not once a beam
    vocabulary = logits.shape[-1]
    cache.select(torch.arange(batch, device=device).repeat_interleave(beams))
    logits = logits.repeat_interleave(beams, 0)

    end_ids = torch.tensor(sorted(end), dtype=torch.long, device=device)
    first = torch.arange(batch, device=device)[:, None] * beams
    # all beams of an item start equal: only the first may be continued
    scores = torch.full((batch, beams), _NEVER, device=device)
    scores[:, 0] = 0.0
    sequences = torch.zeros((batch, beams, 0), dtype=torch.long, device=device)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(batch)]
    closed = [False] * batch

    for length in range(1, max_new_tokens + 1):
        most_likely(logits)
        totals = logits.float().log_softmax(-1).view(batch, beams, vocabulary) + scores[..., None]
        values, places = totals.view(batch, -1).topk(max(2, 1 + len(end_ids)) * beams)
        parents, symbols = places // vocabulary, places % vocabulary
        candidates = torch.cat(
            (sequences.gather(1, parents[..., None].expand(-1, -1, length - 1)), symbols[..., None]), -1
        )
        ends = torch.isin(symbols, end_ids) | (length == max_new_tokens)

        for item in range(batch):
            if closed[item]:
                continue
            for rank in ends[item, :beams].nonzero().flatten().tolist():
                hypothesis = candidates[item, rank].tolist()
                score = float(values[item, rank]) / length**length_penalty
                finished[item].append((score, hypothesis[:-1] if hypothesis[-1] in end else hypothesis))
            finished[item] = sorted(finished[item], key=lambda one: -one[0])[:beams]

        scores, kept = values.masked_fill(ends, _NEVER).topk(beams)
        for item in range(batch):
            best_running = float(scores[item, 0]) / length**length_penalty
            worst = finished[item][-1][0] if len(finished[item]) == beams else _NEVER
            closed[item] = closed[item] or best_running <= worst
        if all(closed) or length == max_new_tokens:
            break
        sequences = candidates.gather(1, kept[..., None].expand(-1, -1, length))
        cache.select((first + parents.gather(1, kept)).flatten())
        logits = decoder(model.language_model.model.embed_tokens(sequences[..., -1].flatten()[:, None]), None, cache)[
            :, -1
        ]
    return [item[0][1] for item in finished], [item[0][0] for item in finished]
