"""The models of the speech study by the name of their architecture: what a plain dictionary of settings builds.

Each configuration has `build()`, `frame_rate` (encoder frames a second), `parameters()`, `macs_per_frame(frames)` and
`to_dict()`, all but the first without torch; each model has the interface of `models.conformer.ConformerCTC`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomix.errors import UserError
from geomix.models.config.conformer import ConformerConfig
from geomix.models.config.granite_encoder import GraniteEncoderCTCConfig
from geomix.settings import E_BRANCHFORMER


def model_config(values: Mapping[str, Any]) -> Any:
    """Configuration of the architecture that `values` names (`conformer` when it names none); unknown keys are refused."""
    architecture = values.get("architecture", "conformer")
    if architecture == "conformer":
        return ConformerConfig.from_dict({key: value for key, value in values.items() if key != "architecture"})
    if architecture == "granite_encoder":
        return GraniteEncoderCTCConfig.from_dict(dict(values))
    if architecture == E_BRANCHFORMER:
        raise UserError(
            f"architecture {architecture!r} is ESPnet's own model: it is built and decoded on the track espnet alone"
        )
    raise UserError(f"architecture {architecture!r} is not known: choose conformer or granite_encoder")
