"""Attention over multivectors."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(
    __name__, {"MultivectorAttention": "module", "RotorPositions": "module", "ValueTransform": "module"}
)
