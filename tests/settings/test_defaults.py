"""Defaults live in the settings; where the library has a default of its own for the same thing, it is the same."""

import dataclasses
import inspect

import pytest
from geomix.mixers.arguments import Attention, Pair
from geomix.mixers.arguments import BlockedAttention as BlockedArguments

from geomix.mixers import BlockedAttention, PairMixer, RelativeAttention
from geomix.models.conformer import ConformerConfig
from geomix.models.granite.encoder_ctc import GraniteEncoderCTCConfig
from geomix.models.transformer_lm import LanguageModelConfig
from geomix.settings.arms import GraniteEncoderArm
from geomix.settings.language import LanguageModel
from geomix.settings.speech import Augmentation, Model
from geomix.speech.augmentation import SpecAugment

PAIRS = [
    (RelativeAttention, Attention),
    (BlockedAttention, BlockedArguments),
    (PairMixer, Pair),
    (ConformerConfig, Model),
    (GraniteEncoderCTCConfig, GraniteEncoderArm),
    (LanguageModelConfig, LanguageModel),
    (SpecAugment, Augmentation),
]


def own_defaults(library):
    if dataclasses.is_dataclass(library):
        return {f.name: f.default for f in dataclasses.fields(library) if f.default is not dataclasses.MISSING}
    parameters = inspect.signature(library).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


@pytest.mark.parametrize(("library", "section"), PAIRS, ids=lambda each: each.__name__)
def test_a_default_of_the_library_is_that_of_the_settings(library, section):
    own = own_defaults(library)
    shared = {
        name: field.get_default(call_default_factory=True)
        for name, field in section.model_fields.items()
        if name in own and not field.is_required()
    }
    assert shared, "nothing is compared"
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
    assert {name: plain[name] for name in shared} == shared
