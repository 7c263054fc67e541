"""A gated depthwise convolution in the mixer's slot: the plainest way to reach as far as the pair mixer does."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.kernels.depthwise import depthwise_conv
from geomix.mixers.frames import Frames


class ConvolutionMixer(nn.Module):
    """Gated map in, depthwise convolution over time, LayerNorm, swish, map out: the Conformer's own module (arXiv 2005.08100,
    section 2.2) with LayerNorm in batch norm's place, which would read padding.

    Args:
        width: model width D.
        kernel: taps k, odd; (k - 1) / 2 frames each way, or k - 1 back where causal. Parameters: 3 D^2 + (k + 6) D, at D = 256
            and k = 33 206,592.
        causal: a frame reads no later one.
    """

    def __init__(self, width: int, kernel: int = 33, causal: bool = False) -> None:
        super().__init__()
        if kernel < 1 or kernel % 2 == 0:
            raise UserError(f"kernel {kernel} of the convolution mixer: choose an odd number of frames")
        self.causal = causal
        self.enter = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, width)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); padded frames influence no real one as long as they are finite."""
        frames.check(x)
        time = x.shape[1]
        x = F.glu(self.enter(x)) * frames.mask.unsqueeze(-1)
        if self.causal:  # zeros before the first frame move every window back by half of itself
            x = F.pad(x, (0, 0, self.depthwise.kernel_size[0] // 2, 0))
        x = depthwise_conv(x, self.depthwise.weight, self.depthwise.bias)[:, :time]
        return self.leave(F.silu(self.norm(x)))
