"""Recordings to text: long audio cut into windows, windows batched by length, greedy or beam search, or the CTC head alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomix.errors import UserError
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.features import HOP, MIN_SAMPLES, SAMPLE_RATE, batch_features, encoder_frames
from geomix.models.granite.model import GraniteSpeech
from geomix.models.granite.prompt import TRANSCRIBE, PromptTokenizer
from geomix.models.granite.search import beam_search, greedy_search, most_likely

WINDOW_SECONDS = (
    40.0  # longest piece of audio given to the model at once: no LibriSpeech utterance is cut (35 s at most)
)
SEARCH_SECONDS = 3.0  # a cut is made at the quietest place of a window's last 3 s
LEAST_SECONDS = 1.0  # no piece after a cut is shorter: the models invent words on very short audio


def cut_windows(waveform: np.ndarray, seconds: float = WINDOW_SECONDS) -> list[tuple[int, int]]:
    """Start and end samples of the windows, of at most `seconds` each, that together are the recording (16 kHz).

    Each cut lies in the quietest 40 ms of the window's last 3 s, at least 1 s before the recording's end.
    Raises UserError when a window would be too short to cut (less than 4 s).
    """
    if not LEAST_SECONDS + SEARCH_SECONDS <= seconds < float("inf"):
        raise UserError(f"a window of {seconds:g} s is too short to look for a pause in: give at least 4 s")
    longest, search, least = (int(value * SAMPLE_RATE) for value in (seconds, SEARCH_SECONDS, LEAST_SECONDS))
    quiet = 4 * HOP
    windows, start = [], 0
    while len(waveform) - start > longest:
        last = min(start + longest, len(waveform) - least)
        first = max(last - search, start + least)
        energy = np.concatenate(([0.0], np.cumsum(np.square(waveform[first:last], dtype=np.float64))))
        places = np.arange(0, last - first - quiet + 1, HOP)
        cut = first + int(places[np.argmin(energy[places + quiet] - energy[places])]) + quiet // 2
        windows.append((start, cut))
        start = cut
    return [*windows, (start, len(waveform))]


@dataclass(frozen=True)
class Window:
    """A window of a recording: which recording, its samples, and the text found in it."""

    recording: int
    start: int
    end: int
    text: str


class _Windowed(ABC):
    """Cuts, sorts by length, batches, and puts the texts back in order; what a batch becomes is the subclass's.

    `progress`, if given, is called after each batch with its windows and its seconds of audio.
    """

    def __init__(
        self, device: torch.device, window_seconds: float, batch: int, progress: Callable[[int, float], None] | None
    ) -> None:
        _whole("batch", batch, "how many windows are decoded at once")
        if type(window_seconds) not in (int, float):
            raise UserError(
                f"window_seconds {window_seconds!r} is not a number: give the seconds of a window, at least 4"
            )
        self.device, self.window_seconds, self.batch, self.progress = device, window_seconds, batch, progress

    @abstractmethod
    def _texts(self, waveforms: Sequence[Tensor]) -> list[str]: ...

    def windows(self, recordings: Iterable[np.ndarray]) -> list[Window]:
        """Decode recordings (samples,) at 16 kHz -> all windows, in order of recording and time.

        Recordings under 257 samples (16 ms) have no features and give an empty text. UserError for samples that are not finite:
        their text would be empty too.
        """
        pieces = [
            (index, start, end, recording[start:end])
            for index, recording in enumerate(_finite(index, one) for index, one in enumerate(recordings))
            for start, end in cut_windows(recording, self.window_seconds)
        ]
        long_enough = [i for i, piece in enumerate(pieces) if len(piece[3]) >= MIN_SAMPLES]
        order = sorted(
            long_enough, key=lambda i: -len(pieces[i][3])
        )  # the largest batch comes first: memory shows at once
        texts = [""] * len(pieces)
        for first in range(0, len(order), self.batch):
            chosen = order[first : first + self.batch]
            found = self._texts([torch.from_numpy(pieces[i][3]) for i in chosen])
            for i, text in zip(chosen, found, strict=True):
                texts[i] = text
            if self.progress:
                self.progress(len(chosen), sum(len(pieces[i][3]) for i in chosen) / SAMPLE_RATE)
        return [Window(piece[0], piece[1], piece[2], text) for piece, text in zip(pieces, texts, strict=True)]

    def transcribe(self, recordings: Iterable[np.ndarray]) -> list[str]:
        """Decode recordings (samples,) at 16 kHz -> one text each, the windows joined with spaces."""
        recordings = list(recordings)
        parts: list[list[str]] = [[] for _ in recordings]
        for window in self.windows(recordings):
            parts[window.recording].append(window.text)
        return [" ".join(filter(None, part)) for part in parts]


def _finite(index: int, recording: np.ndarray) -> np.ndarray:
    recording = np.asarray(recording, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(recording))
    if len(bad):
        raise UserError(
            f"recording {index}: sample {bad[0]} is {recording[bad[0]]:g}, no finite number: export it again"
        )
    return recording


def _whole(name: str, value: object, meaning: str) -> None:
    if type(value) is not int or value < 1:
        raise UserError(f"{name} {value!r} is not a whole number above 0: give {meaning}")


class Transcriber(_Windowed):
    """Speech to text with the whole model.

    beams: 1 is greedy. batch: windows decoded at once. max_new_tokens: per window. instruction, system: the prompt, see
    `PromptTokenizer.render`.
    """

    def __init__(
        self,
        model: GraniteSpeech,
        tokenizer: PromptTokenizer,
        *,
        beams: int = 1,
        batch: int = 8,
        max_new_tokens: int = 200,
        length_penalty: float = 1.0,
        instruction: str = TRANSCRIBE,
        system: str | None = "default",
        window_seconds: float = WINDOW_SECONDS,
        progress: Callable[[int, float], None] | None = None,
    ) -> None:
        super().__init__(model.device, window_seconds, batch, progress)
        _whole("beams", beams, "1 for greedy search")
        _whole("max_new_tokens", max_new_tokens, "the most tokens of a window's text")
        if type(length_penalty) not in (int, float) or not math.isfinite(length_penalty):
            raise UserError(f"length_penalty {length_penalty!r} is not a number: 1 divides a score by its length")
        self.model, self.tokenizer = model, tokenizer
        self.beams, self.max_new_tokens, self.length_penalty = beams, max_new_tokens, length_penalty
        self.prompt = tokenizer.render(instruction, system)

    def inputs(self, waveforms: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Waveforms -> token ids (batch, tokens) padded on the left, their mask, features (batch, T, 160), lengths (batch,)."""
        features, lengths = batch_features(waveforms)
        prompts = [
            self.tokenizer.encode(self.prompt, [int(self.model.projector.rows(encoder_frames(len(waveform))))])
            for waveform in waveforms
        ]
        longest = max(map(len, prompts))
        ids = torch.tensor([[self.tokenizer.pad] * (longest - len(one)) + one for one in prompts])
        mask = torch.tensor([[False] * (longest - len(one)) + [True] * len(one) for one in prompts])
        return ids.to(self.device), mask.to(self.device), features.to(self.device), lengths

    @torch.inference_mode()
    def _texts(self, waveforms: Sequence[Tensor]) -> list[str]:
        ids, mask, features, lengths = self.inputs(waveforms)
        embeddings = self.model.embed(ids, self.model.audio_rows(features, lengths))
        options = {"end": self.tokenizer.end, "max_new_tokens": self.max_new_tokens}
        if self.beams == 1:
            found = greedy_search(self.model, embeddings, mask, **options)
        else:
            found, _ = beam_search(
                self.model, embeddings, mask, beams=self.beams, length_penalty=self.length_penalty, **options
            )
        return [self.tokenizer.decode(one) for one in found]


def ctc_alphabet(symbols: int) -> list[str]:
    """Symbols of the encoder's CTC head by its size: 0 is the blank, c is chr(c) (3.3, 256 symbols, by its card).

    The 348 of 4.x are these and 92 katakana; their order is taken to be Unicode's (U+30A1...), which no card states. The
    alphabet of other sizes (42 in 3.2) is not published: UserError.
    """
    if symbols not in (256, 348):
        raise UserError(
            f"the alphabet of a CTC head with {symbols} symbols is not published: give it as a file with one symbol a line, "
            "the blank first"
        )
    return ["", *map(chr, range(1, 256)), *map(chr, range(0x30A1, 0x30A1 + symbols - 256))]


class CTCTranscriber(_Windowed):
    """Speech to text with the encoder's own CTC head: argmax, collapse, drop the blank."""

    def __init__(
        self,
        encoder: GraniteEncoder,
        alphabet: Sequence[str] | None = None,
        *,
        batch: int = 8,
        window_seconds: float = WINDOW_SECONDS,
        progress: Callable[[int, float], None] | None = None,
    ) -> None:
        super().__init__(encoder.out.weight.device, window_seconds, batch, progress)
        symbols = encoder.config.output_dim
        self.encoder, self.alphabet = encoder, list(alphabet) if alphabet is not None else ctc_alphabet(symbols)
        if len(self.alphabet) != symbols:
            raise UserError(
                f"the alphabet has {len(self.alphabet)} symbols, the CTC head {symbols}: give one line a symbol"
            )

    @torch.inference_mode()
    def _texts(self, waveforms: Sequence[Tensor]) -> list[str]:
        features, lengths = batch_features(waveforms)
        weight = self.encoder.out.weight
        hidden = self.encoder(features.to(weight.device, weight.dtype), lengths)
        best = most_likely(self.encoder.ctc_logits(hidden))
        texts = []
        for path, length in zip(best, lengths.tolist(), strict=True):
            symbols = torch.unique_consecutive(path[:length]).tolist()
            texts.append("".join(self.alphabet[symbol] for symbol in symbols if symbol != 0).strip())
        return texts
