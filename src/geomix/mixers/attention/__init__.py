"""Relative-position self-attention."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(__name__, {"RelativeAttention": "module"})
