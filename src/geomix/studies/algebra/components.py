"""Phase 2: one component of the Transformer at a time takes its multivector form, against the scalar baseline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from geomix.algebra import Algebra
from geomix.models.multivector import replace_component
from geomix.models.transformer_lm import TransformerLM
from geomix.studies.algebra.language_models import LanguageJob, attention_macs, run_language_job
from geomix.training.seeding import seed_all

# arm -> what is replaced, in a sentence for the page
COMPONENTS = {
    "scalar": "nothing: the baseline",
    "embeddings": "token embeddings are multivectors of Cl(3); the same numbers under other names, so that it must tie exactly",
    "embeddings_graded": "the same, with the article's initialisation (section 6.3): grades above 0 start at a tenth",
    "qk": "attention scores are <q ~k>_0 with a learned temperature per head and grade",
    "positions": "rotors R M ~R turn queries and keys; the learned position table is dropped",
    "rope": "the control of `positions`: the same in Cl(2) on vectors, which is rotary position embedding (RoPE) with learned rates",
    "values": "values pass through v -> A v B, a learned sandwich per head and channel",
}
HIGHER_GRADES = 0.1


def change_component(arm: str, model: TransformerLM, seed: int) -> None:
    """Replace an arm's component in place."""
    seed_all(seed, "component", arm)
    if arm == "scalar":
        return
    if arm == "rope":
        replace_component(model, "positions", Algebra(2, grades=(1,)))
        return
    replace_component(model, arm.removesuffix("_graded"))
    if arm == "embeddings_graded":
        with torch.no_grad():
            table = model.tokens.table
            for grade in table.sizes:
                if grade:
                    table.of(grade).mul_(HIGHER_GRADES)


def component_macs(arm: str, model: TransformerLM) -> float:
    """Multiply-adds a token: rotors turn q and k, and the sandwich v, by one matrix of the algebra's size a channel."""
    config = model.config
    ff = config.blocks * 2 * config.width * config.ff_dim
    extra = {"positions": 2 * 8, "rope": 2 * 2, "values": 8}.get(arm, 0) * config.blocks * config.width
    return attention_macs(model) + ff + extra


def run_component(
    settings: Mapping[str, Any], data: str | Path, *, run: str, state: str | Path, log_every: int, out: str | Path
) -> dict[str, Any]:
    """Train all seeds of an arm of phase 2 and write its record."""
    arm = settings["arm"]
    job = LanguageJob(
        settings,
        Path(data),
        change=lambda model, seed: change_component(arm, model, seed),
        macs=lambda model: component_macs(arm, model),
        run=run,
        state=Path(state),
        log_every=log_every,
    )
    return run_language_job(job, {"what": COMPONENTS[arm]}, out)
