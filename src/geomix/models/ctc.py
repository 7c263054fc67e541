"""Connectionist temporal classification: the loss of one batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

BLANK = 0


def ctc_loss(log_probs: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor) -> Tensor:
    """Sum over the batch of -log p(tokens), divided by the batch size, as ESPnet's (Graves et al. 2006).

    An utterance that cannot be aligned (fewer frames than tokens and repeats) counts as zero, with zero gradient; an empty
    target costs the all-blank path. The native kernel is used, not cuDNN's, whose results vary from run to run.

    Args:
        log_probs: (B, T, V) fp32 log-softmax; index 0 is the blank.
        lengths: (B,) frames.
        tokens: (B, U) int64, padded with 0.
        token_lengths: (B,) int64.

    Raises:
        ValueError: a token inside its length is the blank or outside the vocabulary.
    """
    tokens, token_lengths = tokens.to(torch.int64), token_lengths.to(tokens.device, torch.int64)
    inside = torch.arange(tokens.shape[1], device=tokens.device) < token_lengths.unsqueeze(1)
    valid = ((tokens > BLANK) & (tokens < log_probs.shape[-1]) | ~inside).all()
    if tokens.device.type == "cpu":
        if not valid:
            raise ValueError(f"a target holds the blank (0) or a token outside 1 .. {log_probs.shape[-1] - 1}")
    else:
        torch._assert_async(valid)  # no wait for the device
    if tokens.shape[1] == 0:
        tokens = tokens.new_zeros(len(tokens), 1)
    # 64-bit targets on the device of the log-probabilities select the native kernel
    losses = F.ctc_loss(
        log_probs.transpose(0, 1),
        tokens.to(log_probs.device),
        lengths.to(log_probs.device, torch.int64),
        token_lengths.to(log_probs.device),
        blank=BLANK,
        reduction="none",
        zero_infinity=True,
    )
    return losses.sum() / len(losses)
