"""The pair mixer."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(__name__, {"PairMixer": "module"})
