"""Granite Speech as a whole: audio rows take the places of the placeholders, the decoder does the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from geomix.models.granite.config import GraniteConfig
from geomix.models.granite.decoder import GraniteDecoder, KeyValueCache
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.projector import Projector


class GraniteSpeech(nn.Module):
    """Encoder, projector and decoder under the published names. Made by `load_checkpoint`, or with random weights.

    Every weight can be trained: `forward` gives logits with gradients, `adapter.train_only` freezes the rest, and
    `adapter.attach_adapter` puts a LoRA beside the decoder's projections.
    """

    def __init__(self, config: GraniteConfig) -> None:
        super().__init__()
        self.config = config
        self.adapter: Any = None  # settings of the adapter beside the weights, see `adapter.attach_adapter`
        self.encoder = GraniteEncoder(config.encoder)
        self.projector = Projector(config.projector, config.text.hidden_size)
        self.language_model = GraniteDecoder(config.text, config.tie_word_embeddings)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.projector.query.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.projector.query.device

    def audio_rows(self, features: Tensor, lengths: Tensor | None = None, *, masked: bool = True) -> list[Tensor]:
        """features (batch, T, 160), lengths (batch,) -> for each item its rows (ceil(length / 15) * 3, decoder width)."""
        rows = self.projector(self.encoder(features.to(self.device, self.dtype), lengths, masked=masked))
        counts = [features.shape[1]] * len(rows) if lengths is None else lengths.tolist()
        return [item[: self.projector.rows(count)] for item, count in zip(rows, counts, strict=True)]

    def embed(self, input_ids: Tensor, rows: list[Tensor] | None = None) -> Tensor:
        """Token ids (batch, tokens) -> embeddings (batch, tokens, width), audio rows in the places of the placeholders.

        `rows`: one tensor an audio, in the order of the placeholders over the batch.
        Raises ValueError when an item's placeholders and the rows of its audios differ in number.
        """
        is_audio = input_ids == self.config.audio_token_id
        embeddings = self.language_model.model.embed_tokens(input_ids.masked_fill(is_audio, 0))
        counts, audios = is_audio.sum(1).tolist(), [len(item) for item in rows or []]
        taken = 0
        for item, places in enumerate(counts):
            given = 0
            while given < places and taken < len(audios):
                given, taken = given + audios[taken], taken + 1
            if item + 1 == len(counts):
                given += sum(audios[taken:])
            if places != given:
                raise ValueError(
                    f"item {item}: {places} audio placeholders in the prompt, but {given} rows of audio: expand each placeholder"
                )
        if not any(counts):
            return embeddings
        return embeddings.masked_scatter(is_audio.unsqueeze(-1), torch.cat(rows).to(embeddings.dtype))

    def forward(
        self,
        input_ids: Tensor,
        features: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
        masked: bool = True,
    ) -> Tensor:
        """Token ids (batch, tokens) with expanded placeholders, and features (audios, T, 160) -> logits (batch, tokens, vocabulary).

        mask: (batch, tokens) bool, False for left padding. `masked=False`: padding frames leak as in transformers.
        Raises ValueError for text without audio when the adapter, which is for audio, is merged into the weights or stands
        beside them.
        """
        if features is None and cache is None and (self.config.adapter_merged or self.adapter is not None):
            raise ValueError(
                'the adapter for audio is merged into this model: load it with adapter="ignore" for text alone'
            )
        rows = None if features is None else self.audio_rows(features, lengths, masked=masked)
        return self.language_model(self.embed(input_ids, rows), mask, cache)
