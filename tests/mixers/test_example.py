"""PairMixer in ten lines of somebody's own model: the example of the README."""

import torch

# example
from torch import nn

from geomix.mixers import Frames, PairMixer


class Encoder(nn.Module):
    def __init__(self, width: int = 64, blocks: int = 2):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.mixers = nn.ModuleList(PairMixer(width, kind="wedge", rank=16, offsets=(1, 2, 4)) for _ in range(blocks))

    def forward(self, x, lengths):
        frames = Frames.of(lengths, x.shape[1])
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x), frames)
        return x


# end


def test_the_example_runs_ignores_padding_and_trains():
    torch.manual_seed(0)
    encoder, x, lengths = Encoder(), torch.randn(2, 20, 64), torch.tensor([20, 9])
    y = encoder(x, lengths)
    torch.testing.assert_close(y[1:, :9], encoder(x[1:, :9], lengths[1:]), rtol=0, atol=1e-5)
    assert sum(p.numel() for p in encoder.parameters()) == 2 * (128 + 64 * 16 + 16 + 120 * 64 + 64 + 128 * 64 + 64)
    # whether frame t follows frame t - 1 by a left turn in a plane: no function of frame t alone
    a, b = x[:, :-1, :2], x[:, 1:, :2]
    left = (a[..., 0] * b[..., 1] > a[..., 1] * b[..., 0]).float()
    head = nn.Linear(64, 1)
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(30):
        loss = nn.functional.binary_cross_entropy_with_logits(head(encoder(x, lengths))[:, 1:, 0], left)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.3  # a coin's is 0.69
