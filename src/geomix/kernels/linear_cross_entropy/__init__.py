"""Output projection and cross-entropy in one operation, for vocabularies whose logits would dominate memory and time."""

from geomix.kernels.linear_cross_entropy.chunked import linear_cross_entropy

__all__ = ["linear_cross_entropy"]
