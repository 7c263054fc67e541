"""Prompts of Granite Speech: the checkpoint's own chat template and tokenizer, with the audio placeholder expanded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.sandbox
from tokenizers import Tokenizer

from geomix.errors import UserError
from geomix.files import read_json
from geomix.models.granite.config import GraniteConfig

AUDIO = "<|audio|>"
TRANSCRIBE = "can you transcribe the speech into a written format?"  # the instruction of the 3.3 cards
# the system turn of the 3.x cards; the date is fixed, so that a transcript does not depend on the day (4.x takes no system turn)
SYSTEM_3 = (
    "Knowledge Cutoff Date: April 2024.\nToday's Date: December 19, 2024.\n"
    "You are Granite, developed by IBM. You are a helpful AI assistant"
)


class PromptTokenizer:
    """tokenizer.json and the chat template of a checkpoint folder.

    `audio_id` is the placeholder's token, `end` the symbols that end a generation, `pad` fills the left of shorter prompts.
    """

    def __init__(self, tokenizer: Tokenizer, template: str, audio_id: int, end: Sequence[int], pad: int) -> None:
        self.tokenizer, self.audio_id, self.end, self.pad = tokenizer, audio_id, tuple(end), pad
        # as transformers renders templates
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        environment.globals["raise_exception"] = _refuse
        try:
            self._source, self._template = template, environment.from_string(template)
        except jinja2.TemplateError as error:
            raise UserError(f"the checkpoint's chat template cannot be read ({error}): fetch its files again") from None

    @classmethod
    def load(cls, folder: str | Path, config: GraniteConfig) -> PromptTokenizer:
        """Read a checkpoint folder; UserError names the file that is absent, or the placeholder's wrong id."""
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.exists():
            raise UserError(f"{path}: not here: copy the checkpoint's tokenizer files into the folder")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no narrower class
            raise UserError(f"{path}: not a tokenizer ({error}): fetch the file again") from None
        if tokenizer.token_to_id(AUDIO) != config.audio_token_id:
            raise UserError(
                f"{path}: {AUDIO} has id {tokenizer.token_to_id(AUDIO)}, config.json says {config.audio_token_id}: "
                "the two are not of one checkpoint"
            )
        settings, separate = _settings(folder / "tokenizer_config.json"), folder / "chat_template.jinja"
        try:
            template = separate.read_text(encoding="utf-8") if separate.exists() else settings.get("chat_template")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{separate}: cannot be read ({error}): fetch the file again") from None
        if not isinstance(template, str):
            raise UserError(
                f"{folder}: no chat_template in tokenizer_config.json and no chat_template.jinja: copy them too"
            )
        generation = _settings(folder / "generation_config.json")
        end = generation.get("eos_token_id", config.text.eos_token_id)
        if end is None:
            raise UserError(
                f"{folder}: neither generation_config.json nor config.json has an eos_token_id: add it to one"
            )
        end = end if isinstance(end, list) else [end]
        pad = generation.get("pad_token_id", config.text.pad_token_id)
        for name, ids in (("eos_token_id", end), ("pad_token_id", [] if pad is None else [pad])):
            if not all(type(one) is int and 0 <= one < config.text.vocab_size for one in ids) or (
                name[0] == "e" and not ids
            ):
                raise UserError(
                    f"{folder / 'generation_config.json'}: {name} is {ids}: give tokens of the vocabulary of {config.text.vocab_size}"
                )
        return cls(tokenizer, template, config.audio_token_id, end, end[0] if pad is None else pad)

    def render(self, instruction: str = TRANSCRIBE, system: str | None = "default") -> str:
        """The prompt text for one audio. `system`: a text, None for no system turn, "default" for what the cards of the family use."""
        if system == "default":
            system = SYSTEM_3 if "<|start_of_role|>" in self._source else None
        turns = [] if system is None else [{"role": "system", "content": system}]
        turns.append({"role": "user", "content": AUDIO + instruction})
        try:
            return self._template.render(messages=turns, add_generation_prompt=True)
        except UserError:
            raise
        except Exception as error:  # a template is somebody else's program
            raise UserError(
                f"the checkpoint's chat template fails on this prompt ({error}): fetch its files again"
            ) from None

    def encode(self, prompt: str, rows: Sequence[int]) -> list[int]:
        """Token ids of a prompt, its n-th placeholder repeated rows[n] times; UserError when their numbers differ."""
        ids, counts = [], iter(rows)
        encoded = self.tokenizer.encode(prompt).ids
        if encoded.count(self.audio_id) != len(rows):
            raise UserError(
                f"the prompt has {encoded.count(self.audio_id)} {AUDIO} placeholders for {len(rows)} audios: give one each"
            )
        for token in encoded:
            ids.extend([token] * next(counts) if token == self.audio_id else [token])
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens and without space around it."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True).strip()


def _settings(path: Path) -> dict:
    """A JSON file of settings by name, none where it is absent."""
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise UserError(f"{path}: holds no settings by name: fetch the file again")
    return found


def _refuse(message: str) -> None:
    raise UserError(f"the checkpoint's chat template refuses this prompt: {message}")
