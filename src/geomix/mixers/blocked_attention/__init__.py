"""Attention within blocks, linear in the length."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(
    __name__, {"BlockedAttention": "module", "blocked_attention": "module", "blocked_attention_naive": "module"}
)
