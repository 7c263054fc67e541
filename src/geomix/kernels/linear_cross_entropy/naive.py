"""The definition: all logits, then the mean negative log-probability of the targets."""

import torch
from torch import Tensor


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of `hidden @ weight.T` against `targets`.

    Parameters
    ----------
    hidden
        (tokens, width).
    weight
        (vocabulary, width); no bias, as a tied output head has none.
    targets
        (tokens,) int64.
    """
    logits = hidden @ weight.T
    log_probs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    return -log_probs.gather(-1, targets[:, None]).mean()
