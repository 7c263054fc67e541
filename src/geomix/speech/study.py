"""What a speech study is, written down before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.files import write_json
from geomix.models.arms import check_matched


def describe_study(
    config: Mapping[str, Any],
    tokens: str | os.PathLike,
    out: str | os.PathLike,
    manifests: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write study.json: the parts of the configuration that say what is asked, and the exact size of each arm.

    Parameters
    ----------
    config : the parts of the configuration that the report needs, as the configuration has them; `gate` None is a study
        without one
    tokens : tokens.txt; its lines are the model's output units
    out : path of study.json
    manifests : evaluation set -> its manifest, as paths from the project's root: what `geomix publish` copies

    Raises
    ------
    UserError
        For an arm of the study whose parameter count is more than 5 % from attention's without `unmatched: true`.
    """
    vocabulary = len(Path(tokens).read_text(encoding="utf-8").splitlines())
    # arms that are not run need not match
    run = {name: config["arms"][name] for name in {"attention", *config["study"]["arms"]}}
    sizes = check_matched({**config, "arms": run}, vocabulary)
    description = {
        **config,
        "vocabulary": vocabulary,
        "sizes": {
            size.arm: {
                "parameters": size.parameters,
                "deviation": size.deviation,
                "flops_per_audio_second": size.flops_per_audio_second,
            }
            for size in sizes
        },
    }
    if manifests is not None:
        description["manifests"] = {name: str(path) for name, path in manifests.items()}
    write_json(out, description)
    return description
