"""FNet's Fourier transform."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(__name__, {"FourierMixer": "module"})
