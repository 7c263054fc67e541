"""Chunked linear + cross-entropy: a slice of tokens at a time, with the gradients made while its logits are at hand.

The naive form holds tokens x vocabulary logits (500 MB in fp32 for 4,096 x 30,522) and passes over them about seven
times from forward to backward. Here each slice's logits are made, normalised, turned into their own gradient and
multiplied back before the next slice starts, so that they stay in cache on a CPU and small on a GPU; what is kept for
backward is two tensors of the size of the inputs. The number of matrix products is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.kernels.autocast import autocast_dtype, without_autocast

# tokens a slice: on a CPU the logits stay in cache (128 was best for 2,000 to 30,522 pieces); a GPU wants few launches
_CHUNK = {"cpu": 128}
_CHUNK_ELSEWHERE = 2048
_LOG_FLOOR = -69.0


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int | None = None) -> Tensor:
    """Mean cross-entropy, in nats, of `hidden @ weight.T` against `targets`; equal to `naive.linear_cross_entropy`.

    Parameters
    ----------
    hidden
        (tokens, width).
    weight
        (vocabulary, width).
    targets
        (tokens,) int64.
    chunk
        Tokens a slice; by default as many as the device takes well.

    Returns
    -------
    Tensor
        Scalar, in fp32 or wider. Products run in autocast's type where it is on, the rest in at least fp32.

    Raises
    ------
    ValueError
        When the shapes do not fit or there is no token.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1] or targets.shape != hidden.shape[:1]:
        raise ValueError(
            f"linear_cross_entropy: hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)} and targets "
            f"{tuple(targets.shape)} do not fit: give (tokens, width), (vocabulary, width) and (tokens,)"
        )
    if hidden.shape[0] == 0:
        raise ValueError("linear_cross_entropy: no tokens, so that the mean is undefined: give at least one")
    device = hidden.device.type
    product_type = autocast_dtype(hidden) or torch.promote_types(hidden.dtype, weight.dtype)
    if chunk is None:
        chunk = _CHUNK.get(device, _CHUNK_ELSEWHERE)
    return _ChunkedLinearCrossEntropy.apply(hidden, weight, targets, chunk, product_type)


class _ChunkedLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, chunk, product_type):
        with without_autocast(hidden):  # product_type already says what autocast would
            return _forward(ctx, hidden, weight, targets, chunk, product_type)

    @staticmethod
    def backward(ctx, grad_loss):
        grad_hidden, grad_weight = ctx.saved_tensors
        scaled = [
            None if grad is None else (grad * grad_loss).to(dtype)
            for grad, dtype in zip((grad_hidden, grad_weight), ctx.dtypes, strict=True)
        ]
        return (*scaled, None, None, None)


def _forward(ctx, hidden, weight, targets, chunk, product_type):
    sum_type = torch.promote_types(product_type, torch.float32)
    h, w = hidden.to(product_type), weight.to(product_type)
    tokens = h.shape[0]
    need_hidden, need_weight = ctx.needs_input_grad[:2]
    grad_hidden = torch.empty_like(h, dtype=sum_type) if need_hidden else None
    grad_weight = torch.zeros_like(w, dtype=sum_type) if need_weight else None
    total = torch.zeros((), dtype=sum_type, device=h.device)
    for start in range(0, tokens, chunk):
        rows = slice(start, start + chunk)
        target = targets[rows, None]
        log_probs = (h[rows] @ w.T).to(sum_type).log_softmax(dim=-1)
        total -= log_probs.gather(-1, target).sum()
        if not (need_hidden or need_weight):
            continue
        # d loss / d logits = (softmax - one-hot) / tokens, in place of the log-probabilities. Probabilities under 1e-30
        # are held there: N(0, 1) embeddings make denormal ones, with which a CPU multiplies twenty times slower
        grad = log_probs.clamp_(min=_LOG_FLOOR).exp_()
        grad.scatter_add_(-1, target, torch.full_like(target, -1, dtype=sum_type))
        grad = grad.mul_(1 / tokens).to(product_type)
        if need_hidden:
            grad_hidden[rows] = grad @ w
        if need_weight:
            if product_type == sum_type:
                grad_weight.addmm_(grad.T, h[rows])
            else:
                grad_weight += grad.T @ h[rows]
    ctx.save_for_backward(grad_hidden, grad_weight)
    ctx.dtypes = hidden.dtype, weight.dtype
    return total / tokens
