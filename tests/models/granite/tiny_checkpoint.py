"""A whole tiny checkpoint folder, with a real tokenizer: python -m tests.models.granite.tiny_checkpoint FOLDER."""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from geomix.models.granite import save_checkpoint
from tests.models.granite.checks import write_adapter
from tests.models.granite.tiny import random_model, tiny_config

SPECIAL = ["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|audio|>"]
# the turns as the 3.3 and the 4.x checkpoints write them
TEMPLATE_3 = (
    "{% for message in messages %}<|start_of_role|>{{ message['role'] }}<|end_of_role|>{{ message['content'] }}"
    "<|end_of_text|>\n{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
TEMPLATE_4 = (
    "{% for message in messages %}{% if message['role'] == 'user' %}USER: {{ message['content'] }}\n"
    "{% else %}{{ raise_exception('only user turns') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)


def make_tokenizer() -> Tokenizer:
    """Byte-level BPE as Granite's, 256 bytes and a few merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL[:3],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["can you transcribe the speech into a written format?"] * 4, trainer)
    tokenizer.add_special_tokens([AddedToken("<|audio|>", special=True)])
    return tokenizer


def make_checkpoint(folder: Path, *, template: str = TEMPLATE_3, adapter: bool = True, seed: int = 0) -> Path:
    """Write a checkpoint of the 3.3 kind with random weights, 256 CTC symbols and, if asked, an adapter."""
    tokenizer = make_tokenizer()
    config = tiny_config(
        encoder={"output_dim": 256},
        text={"vocab_size": tokenizer.get_vocab_size(), "embedding_multiplier": 3.0},
        audio_id=tokenizer.token_to_id("<|audio|>"),
        tied=False,
    )
    save_checkpoint(random_model(config, seed), folder)
    if adapter:
        write_adapter(folder, rank=4, alpha=0.5, prefix="", layers=2, config=config)
        about = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**about, "has_lora_adapter": True}))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "pad_token_id": 0}))
    return folder


if __name__ == "__main__":
    make_checkpoint(Path(sys.argv[1]))
