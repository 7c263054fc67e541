"""The definition of Granite Speech, written down a second time: loops, full matrices, tensors by their published names, float64.

Nothing of geomix is used, so that a fault in one is not a fault in both. `w` is a state dict, `c` the matching section of a
config.json. One item at a time; it has no padding.
"""

import math

import torch
from torch import Tensor


def layer_norm(x: Tensor, w: dict, name: str, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * w[name + ".weight"] + w[name + ".bias"]


def linear(x: Tensor, w: dict, name: str) -> Tensor:
    y = x @ w[name + ".weight"].squeeze(-1).T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def feed_forward(x: Tensor, w: dict, name: str) -> Tensor:
    y = linear(layer_norm(x, w, f"{name}.pre_norm", 1e-5), w, f"{name}.up_proj")
    return linear(y * y.sigmoid(), w, f"{name}.down_proj")


def attention(x: Tensor, w: dict, name: str, c: dict) -> Tensor:
    x = layer_norm(x, w, f"{name}.pre_norm", 1e-5)
    heads, width, out = c["num_heads"], c["dim_head"], []
    for start in range(0, len(x), c["context_size"]):
        window = x[start : start + c["context_size"]]
        q = linear(window, w, f"{name}.to_q")
        kv = linear(window, w, f"{name}.to_kv")
        k, v = kv[:, : heads * width], kv[:, heads * width :]
        n = torch.arange(len(window))
        table = w[f"{name}.rel_pos_emb.weight"][n[:, None] - n[None, :] + c["max_pos_emb"]]
        columns = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            scores = q[:, part] @ k[:, part].T + (q[:, None, part] * table).sum(-1)
            columns.append((scores / math.sqrt(width)).softmax(-1) @ v[:, part])
        out.append(torch.cat(columns, -1))
    return linear(torch.cat(out), w, f"{name}.to_out")


def convolution(x: Tensor, w: dict, name: str, c: dict) -> Tensor:
    y = linear(layer_norm(x, w, f"{name}.norm", 1e-5), w, f"{name}.up_conv")
    y = y[:, : y.shape[1] // 2] * y[:, y.shape[1] // 2 :].sigmoid()
    kernel = w[f"{name}.depth_conv.conv.weight"][:, 0]
    before = kernel.shape[1] // 2
    filtered = torch.zeros_like(y)
    for t in range(len(y)):
        for tap in range(kernel.shape[1]):
            if 0 <= t + tap - before < len(y):
                filtered[t] += kernel[:, tap] * y[t + tap - before]
    bn = f"{name}.batch_norm"
    y = (filtered - w[f"{bn}.running_mean"]) / (w[f"{bn}.running_var"] + 1e-5).sqrt() * w[f"{bn}.weight"] + w[
        f"{bn}.bias"
    ]
    return linear(y * y.sigmoid(), w, f"{name}.down_conv")


def encoder(features: Tensor, w: dict, c: dict) -> Tensor:
    """(T, 160) -> (T, hidden)."""
    x = linear(features, w, "encoder.input_linear")
    for i in range(c["num_layers"]):
        name = f"encoder.layers.{i}"
        x = x + feed_forward(x, w, f"{name}.ff1") / 2
        x = x + attention(x, w, f"{name}.attn", c)
        x = x + convolution(x, w, f"{name}.conv", c)
        x = x + feed_forward(x, w, f"{name}.ff2") / 2
        x = layer_norm(x, w, f"{name}.post_norm", 1e-5)
        if i + 1 == c["num_layers"] // 2:
            x = x + linear(linear(x, w, "encoder.out").softmax(-1), w, "encoder.out_mid")
    return x


def q_former_attention(x: Tensor, source: Tensor, w: dict, name: str, c: dict) -> Tensor:
    heads = c["num_attention_heads"]
    q, k, v = (linear(a, w, f"{name}.attention.{b}") for a, b in ((x, "query"), (source, "key"), (source, "value")))
    width = q.shape[-1] // heads
    parts = [slice(h * width, (h + 1) * width) for h in range(heads)]
    y = torch.cat([(q[:, p] @ k[:, p].T / math.sqrt(width)).softmax(-1) @ v[:, p] for p in parts], -1)
    return layer_norm(linear(y, w, f"{name}.output.dense") + x, w, f"{name}.output.LayerNorm", c["layer_norm_eps"])


def projector(hidden: Tensor, w: dict, c: dict, window: int) -> Tensor:
    """(T, hidden) -> (ceil(T / window) * queries, decoder width)."""
    rows = []
    for start in range(0, len(hidden), window):
        piece = hidden.new_zeros(window, hidden.shape[1])
        piece[: len(hidden[start : start + window])] = hidden[start : start + window]
        x = layer_norm(w["projector.query"][0], w, "projector.qformer.layernorm", c["layer_norm_eps"])
        for i in range(c["num_hidden_layers"]):
            name = f"projector.qformer.encoder.layer.{i}"
            x = q_former_attention(x, x, w, f"{name}.attention", c)
            if i % c["cross_attention_frequency"] == 0:
                x = q_former_attention(x, piece, w, f"{name}.crossattention", c)
            y = linear(x, w, f"{name}.intermediate_query.dense")
            y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
            y = linear(y, w, f"{name}.output_query.dense")
            x = layer_norm(y + x, w, f"{name}.output_query.LayerNorm", c["layer_norm_eps"])
        rows.append(linear(x, w, "projector.linear"))
    return torch.cat(rows)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def rotate(x: Tensor, theta: float) -> Tensor:
    """(tokens, d): the pair (x_i, x_(i + d/2)) of token t turns by t * theta^(-2i/d)."""
    half = x.shape[1] // 2
    angles = torch.arange(len(x), dtype=x.dtype)[:, None] * theta ** (
        -2 * torch.arange(half, dtype=x.dtype) / x.shape[1]
    )
    a, b = x[:, :half], x[:, half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def decoder(embeddings: Tensor, w: dict, c: dict) -> Tensor:
    """(tokens, width) before the embedding multiplier -> logits (tokens, vocabulary)."""
    x = embeddings * c["embedding_multiplier"]
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    for i in range(c["num_hidden_layers"]):
        name = f"language_model.model.layers.{i}"
        h = rms_norm(x, w[f"{name}.input_layernorm.weight"], c["rms_norm_eps"])
        q, k, v = (linear(h, w, f"{name}.self_attn.{p}_proj") for p in "qkv")
        width, columns = q.shape[1] // heads, []
        for head in range(heads):
            shared = head // (heads // kv_heads)
            q_h = rotate(q[:, head * width : (head + 1) * width], c["rope_theta"])
            k_h = rotate(k[:, shared * width : (shared + 1) * width], c["rope_theta"])
            scores = (q_h @ k_h.T * c["attention_multiplier"]).masked_fill(~causal, -math.inf)
            columns.append(scores.softmax(-1) @ v[:, shared * width : (shared + 1) * width])
        x = x + linear(torch.cat(columns, -1), w, f"{name}.self_attn.o_proj") * c["residual_multiplier"]
        h = rms_norm(x, w[f"{name}.post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = linear(h, w, f"{name}.mlp.gate_proj")
        y = linear(gate * gate.sigmoid() * linear(h, w, f"{name}.mlp.up_proj"), w, f"{name}.mlp.down_proj")
        x = x + y * c["residual_multiplier"]
    x = rms_norm(x, w["language_model.model.norm.weight"], c["rms_norm_eps"])
    head = w.get("language_model.lm_head.weight", w["language_model.model.embed_tokens.weight"])
    return x @ head.T / c["logits_scaling"]


def logits(input_ids: Tensor, features: Tensor, w: dict, config: dict) -> Tensor:
    """Token ids (tokens,) with expanded placeholders and one audio's features (T, 160) -> logits (tokens, vocabulary)."""
    rows = iter(
        projector(encoder(features, w, config["encoder_config"]), w, config["projector_config"], config["window_size"])
    )
    table = w["language_model.model.embed_tokens.weight"]
    audio = config["audio_token_index"]
    embeddings = torch.stack([next(rows) if token == audio else table[token] for token in input_ids.tolist()])
    assert next(rows, None) is None, "rows without a placeholder"
    return decoder(embeddings, w, config["text_config"])
