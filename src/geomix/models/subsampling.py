"""The convolutional front end: log-mel frames to encoder frames, 4 or 8 times fewer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from geomix.models.config.lengths import CONVOLUTIONS, subsampled_length


class Conv2dSubsampling(nn.Module):
    """ESPnet's conv2d (subsampling 4) and conv2d8 (8) front ends: 3 x 3 convolutions of stride 2 with ReLU, then a linear map.

    Args:
        features: log-mel bins.
        width: channels of every convolution, and of the output.
        subsampling: 4 or 8.
    """

    def __init__(self, features: int, width: int, subsampling: int = 4) -> None:
        super().__init__()
        count = CONVOLUTIONS[subsampling]
        self.conv = nn.ModuleList(nn.Conv2d(1 if n == 0 else width, width, 3, 2) for n in range(count))
        self.out = nn.Linear(width * subsampled_length(features, subsampling), width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, features) to (B, subsampled_length(T), width); a real output frame reads real input frames only."""
        x = x.unsqueeze(1)
        for conv in self.conv:
            if x.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
                x = _ConvReLU.apply(x, conv.weight, conv.bias)
            else:
                x = F.relu(conv(x.contiguous(memory_format=torch.channels_last)))
        # `out` reads channel-major columns, as ESPnet's does; the activations stay channels-last and its weight is turned
        batch, channels, frames, bins = x.shape
        weight = self.out.weight.view(-1, channels, bins).transpose(1, 2).flatten(1)
        return F.linear(x.permute(0, 2, 3, 1).reshape(batch, frames, bins * channels), weight, self.out.bias)


class _ConvReLU(torch.autograd.Function):
    """relu(conv2d(x, weight, bias, stride=2)) of a 3 x 3 kernel, channels-last, for CPUs.

    oneDNN's gradient of the weight runs at a third of the matrix product's rate; here it is a product with the patches of a few
    rows at a time, which stay in cache.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = F.conv2d(x.contiguous(memory_format=torch.channels_last), weight, bias, stride=2)
        y = y.contiguous(memory_format=torch.channels_last).relu_()
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, weight, y = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, y, 0).contiguous(memory_format=torch.channels_last)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.ops.aten.convolution_backward(
                grad, x, weight, None, (2, 2), (0, 0), (1, 1), False, (0, 0), 1, (True, False, False)
            )[0]
        rows, frames = grad.permute(0, 2, 3, 1), x.permute(0, 2, 3, 1).contiguous()  # (B, T, bins, channels)
        channels, rows_at_once = x.shape[1], max(1, 2**21 // (9 * x.shape[1] * grad.shape[3]))
        grad_weight = weight.new_zeros(9 * channels, weight.shape[0])
        for utterance in range(len(x)):
            for start in range(0, grad.shape[2], rows_at_once):
                block = rows[utterance, start : start + rows_at_once]
                grad_weight.addmm_(_patches(frames[utterance, 2 * start :], *block.shape[:2]).T, block.flatten(0, 1))
        grad_weight = grad_weight.view(3, 3, channels, -1).permute(3, 2, 0, 1)
        return grad_x, grad_weight, rows.sum((0, 1, 2))


def _patches(x: Tensor, rows: int, columns: int) -> Tensor:
    """The 3 x 3 patches, stride 2, of x (T, bins, channels): (rows * columns, 9 * channels); three bins are contiguous."""
    time, bin_, _ = x.stride()
    view = x.as_strided((rows, columns, 3, 3 * x.shape[2]), (2 * time, 2 * bin_, time, 1), x.storage_offset())
    return view.reshape(rows * columns, -1)
