"""Small random models of every shape, as the tests need them."""

from dataclasses import asdict

import torch

from geomix.models.granite import EncoderConfig, GraniteConfig, GraniteSpeech, ProjectorConfig, TextConfig

AUDIO_ID = 95


def tiny_config(*, encoder=(), projector=(), text=(), tied=True, audio_id=AUDIO_ID) -> GraniteConfig:
    """Heads times width is not the hidden size, no multiplier is 1, heads share keys: nothing hides behind an equality.

    `encoder`, `projector`, `text`: settings to change, as dictionaries.
    """
    encoder = {
        "num_layers": 4, "hidden_dim": 24, "num_heads": 3, "dim_head": 20, "output_dim": 12, "context_size": 16,
        "max_pos_emb": 24, "dropout": 0.1, **dict(encoder),
    }  # fmt: skip
    projector = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
        "cross_attention_frequency": 1, "encoder_hidden_size": encoder["hidden_dim"], **dict(projector),
    }  # fmt: skip
    text = {
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "embedding_multiplier": 12.0,
        "attention_multiplier": 1.0, "residual_multiplier": 0.22, "logits_scaling": 4.0, "bos_token_id": 0,
        "eos_token_id": 0, "pad_token_id": 0, **dict(text),
    }  # fmt: skip
    return GraniteConfig(
        EncoderConfig(**encoder), ProjectorConfig(**projector), TextConfig(**text), audio_token_id=audio_id,
        has_lora_adapter=False, tie_word_embeddings=tied,
    )  # fmt: skip


def random_model(config: GraniteConfig, seed: int = 0, dtype: torch.dtype = torch.float32) -> GraniteSpeech:
    """Weights large enough that attention is peaked and greedy choices vary; norms and BatchNorm statistics random too."""
    generator = torch.Generator().manual_seed(seed)
    model = GraniteSpeech(config)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if name.endswith("running_var") or ("norm" in name.lower() and name.endswith("weight")):
            tensor.copy_(1 + 0.3 * noise.tanh())
        elif tensor.ndim < 2:
            tensor.copy_(0.3 * noise)
        elif name.endswith(("embed_tokens.weight", "rel_pos_emb.weight")):
            tensor.copy_(0.5 * noise)
        else:
            tensor.copy_(noise * 1.5 / tensor[0].numel() ** 0.5)
    return model.to(dtype).eval()


def prompt_ids(rows: int, config: GraniteConfig, seed: int = 0) -> torch.Tensor:
    """(1, tokens): five text tokens around `rows` placeholders."""
    text = torch.randint(1, config.audio_token_id, (5,), generator=torch.Generator().manual_seed(seed)).tolist()
    return torch.tensor([[*text[:2], *[config.audio_token_id] * rows, *text[2:]]])


def oracle_config(config: GraniteConfig) -> dict:
    """What tests/models/granite/oracle.py reads, which is a config.json."""
    return {
        "encoder_config": asdict(config.encoder),
        "projector_config": asdict(config.projector),
        "text_config": asdict(config.text),
        "window_size": config.projector.window_size,
        "audio_token_index": config.audio_token_id,
    }
