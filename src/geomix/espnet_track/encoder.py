"""Our arms as an encoder of ESPnet's: its Conformer, with our module in each block's attention slot.

Needs ESPnet. The class enters ESPnet's choices at run time (`register`): nothing of ESPnet's tree is changed.
"""

from __future__ import annotations

import espnet2.tasks.asr as asr
import torch
from espnet2.asr.encoder.conformer_encoder import ConformerEncoder
from torch import Tensor, nn

from geomix.espnet_track.settings import ENCODER
from geomix.mixers import Frames, make_mixer


class MixerSlot(nn.Module):
    """One of our mixers, or none, behind the call that ESPnet's encoder layer makes of its attention.

    Without a mixer the branch adds zeros: the slot is skipped, and the layer's norm_mha stays a member, as in our Conformer.
    """

    def __init__(self, mixer: nn.Module | None) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, query: Tensor, key: Tensor, value: Tensor, pos_emb: Tensor, mask: Tensor) -> Tensor:
        """query (B, T, width), pos_emb (1, 2 T - 1, width), mask (B, 1, T), True on real frames -> (B, T, width)."""
        if self.mixer is None:
            return torch.zeros_like(query)
        real = mask.squeeze(1).bool()
        return self.mixer(query, Frames(real.sum(-1), real, pos_emb))


class GeomixConformer(ConformerEncoder):
    """ESPnet's Conformer encoder with the mixer `{"mixer": name, ...arguments}`; ESPnet's own attention for `attention`.

    `mixer_seed` draws the tables of mixers that have some; everything else is ESPnet's (`espnet2.asr.encoder.conformer_encoder`).
    """

    def __init__(self, input_size: int, mixer: dict, mixer_seed: int = 0, **conformer) -> None:
        super().__init__(input_size, **conformer)
        arguments = dict(mixer)
        name = arguments.pop("mixer")
        if name == "attention":
            return
        dropout = conformer.get("attention_dropout_rate", 0.0)
        for block, layer in enumerate(self.encoders):
            layer.self_attn = MixerSlot(
                make_mixer(name, self.output_size(), block=block, seed=mixer_seed, dropout=dropout, **arguments)
            )


def register() -> None:
    """Enter `GeomixConformer` among ESPnet's encoders, in this process; twice does no harm."""
    asr.encoder_choices.classes[ENCODER] = GeomixConformer
