"""Names of the same parameters in both tracks: our `ConformerCTC` and ESPnet's CTC model around a Conformer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

# ours -> ESPnet's; the blocks are below
_OUTSIDE = {
    r"(mean|std)": r"normalize.\1",
    r"embed\.out\.(.+)": r"encoder.embed.out.\1",
    r"after_norm\.(.+)": r"encoder.after_norm.\1",
    r"conditioning\.(.+)": r"encoder.conditioning_layer.\1",
    r"ctc\.(.+)": r"ctc.ctc_lo.\1",
}
FRONTEND = "frontend."
"""ESPnet's mel filters are a buffer of its model; ours are computed where features are."""


def espnet_name(name: str, *, attention: bool) -> str:
    """ESPnet's name of one of our parameters; `attention` says whose mixer is ESPnet's own attention, not a module of ours."""
    if found := re.fullmatch(r"embed\.conv\.(\d+)\.(.+)", name):
        return f"encoder.embed.conv.{2 * int(found[1])}.{found[2]}"  # ESPnet's Sequential has a ReLU behind each
    if found := re.fullmatch(r"blocks\.(\d+)\.mixer\.(.+)", name):
        return f"encoder.encoders.{found[1]}.self_attn.{'' if attention else 'mixer.'}{found[2]}"
    if found := re.fullmatch(r"blocks\.(\d+)\.(.+)", name):
        return f"encoder.encoders.{found[1]}.{found[2]}"
    for pattern, replacement in _OUTSIDE.items():
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    raise ValueError(f"{name}: no parameter of ESPnet's Conformer corresponds to it")


def to_espnet(state: Mapping[str, T], *, attention: bool) -> dict[str, T]:
    """Our state dict under ESPnet's names (the frontend's constants, which ours lacks, are not in it)."""
    return {espnet_name(name, attention=attention): value for name, value in state.items()}


def from_espnet(state: Mapping[str, T], names: Mapping[str, object], *, attention: bool) -> dict[str, T]:
    """ESPnet's state dict under the `names` of our model's; what is over or missing is a `ValueError`."""
    wanted = {espnet_name(name, attention=attention): name for name in names}
    own = {name: value for name, value in state.items() if not name.startswith(FRONTEND)}
    if set(own) != set(wanted):
        differ = sorted(set(own) ^ set(wanted))
        raise ValueError(f"ESPnet's weights are not those of our model: {', '.join(differ[:4])}")
    return {wanted[name]: value for name, value in own.items()}
