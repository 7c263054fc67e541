"""A second gated depthwise convolution."""

from geomix.mixers.lazy import lazily

__getattr__ = lazily(__name__, {"ConvolutionMixer": "module"})
