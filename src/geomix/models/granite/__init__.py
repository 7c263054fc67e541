"""Granite Speech (GraniteSpeechForConditionalGeneration): the published model, exact, loadable and trainable.

    from geomix.models.granite import load_checkpoint, Transcriber

    model, tokenizer = load_checkpoint("granite-speech-3.3-2b", dtype="bfloat16", device="cuda")
    texts = Transcriber(model, tokenizer).transcribe([waveform])

Fine-tuning: `load_checkpoint(..., adapter="train")` or `attach_adapter`, then `train_only(model, "projector", "adapter")`,
the loss of `model(ids, features, lengths)`, and `save_adapter` or `merge_attached` and `save_checkpoint`.

Sources: transformers 4.57.1, models/granite_speech, models/granite and models/blip_2 (the Q-Former); the cards and config
files of ibm-granite/granite-speech-*. Arithmetic is that of 4.57.1, except that padding is masked: an item in a batch
equals the item alone (`masked=False` gives the original's behaviour).
"""

from geomix.models.granite.adapter import attach_adapter, merge_attached, save_adapter, train_only
from geomix.models.granite.checkpoint import load_checkpoint, load_encoder, save_checkpoint
from geomix.models.granite.config import EncoderConfig, GraniteConfig, ProjectorConfig, TextConfig, read_config
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.encoder_ctc import GraniteEncoderCTC, GraniteEncoderCTCConfig
from geomix.models.granite.model import GraniteSpeech
from geomix.models.granite.transcription import CTCTranscriber, Transcriber

__all__ = [
    "CTCTranscriber",
    "EncoderConfig",
    "GraniteConfig",
    "GraniteEncoder",
    "GraniteEncoderCTC",
    "GraniteEncoderCTCConfig",
    "GraniteSpeech",
    "ProjectorConfig",
    "TextConfig",
    "Transcriber",
    "attach_adapter",
    "load_checkpoint",
    "load_encoder",
    "merge_attached",
    "read_config",
    "save_adapter",
    "save_checkpoint",
    "train_only",
]
