"""What the tests promise about Granite Speech, as functions that raise AssertionError: pytest calls them, and so does the
mutation run (tests/granite_mutations.py), which applies known faults to the code and expects each to be caught by one.

Tolerances: float32 against the golden tensors (transformers 4.57.1) as reference/issue demand, float64 against the oracle.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from geomix.mixers.blocked_attention import blocked_attention, blocked_attention_naive
from geomix.models.granite import load_encoder, read_config, save_checkpoint
from geomix.models.granite.checkpoint import load_model
from geomix.models.granite.features import batch_features, encoder_frames, input_features
from geomix.models.granite.search import beam_search, greedy_search
from tests.models.granite import oracle
from tests.models.granite.tiny import oracle_config, prompt_ids, random_model, tiny_config

LENGTHS = (1, 2, 14, 15, 16, 31, 199, 200, 201, 415)


def close(ours: Tensor, theirs: Tensor, tolerance: float, what: str) -> None:
    assert ours.shape == theirs.shape, f"{what}: shape {list(ours.shape)}, not {list(theirs.shape)}"
    error = float((ours.detach().double() - theirs.detach().double()).abs().max())
    assert error <= tolerance, f"{what}: off by {error:.2e}, more than {tolerance:.0e}"


class Golden:
    """The tiny checkpoint and the tensors that transformers 4.57.1 computed with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors = load_file(folder / "golden.safetensors")
        self.model = load_model(folder / "checkpoint")

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


@torch.inference_mode()
def check_features(golden: Golden) -> None:
    for samples in (257, 320, 4799, 16000):
        close(input_features(golden[f"waveform.{samples}"]), golden[f"waveform_features.{samples}"], 1e-5, "features")
    close(input_features(torch.zeros(1, 800)), torch.full((1, 3, 160), -1.5), 0, "features of silence")
    burst = torch.zeros(
        16000
    )  # a click in silence: the floor is 8 below the whole recording's maximum, 2 after the division
    burst[8000:8200] = torch.randn(200, generator=torch.Generator().manual_seed(0))
    features = input_features(burst)
    close(features[:10], (features.max() - 2).expand(10, 160), 1e-6, "floor of a recording with silence")


@torch.inference_mode()
def check_placeholders(golden: Golden) -> None:
    for samples in (257, 320, 4799, 16000):
        count = golden.model.projector.rows(encoder_frames(samples))
        assert count == golden[f"audio_tokens.{samples}"].item(), f"placeholders of {samples} samples: {count}"
    for samples in (*range(257, 20000, 37), *range(320, 20001, 160)):
        frames = encoder_frames(samples)
        assert frames == input_features(torch.zeros(samples)).shape[0], f"frames of {samples} samples: {frames}"
        rows = golden.model.projector(torch.zeros(1, frames, 32)).shape[1]
        assert golden.model.projector.rows(frames) == rows == -(-frames // 15) * 3, f"rows of {samples} samples: {rows}"


@torch.inference_mode()
def check_encoder(golden: Golden) -> None:
    encoder = golden.model.encoder
    blocks: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda _m, _i, out: blocks.append(out.clone())) for layer in encoder.layers]
    try:
        for length in LENGTHS:
            blocks.clear()
            hidden = encoder(golden[f"features.{length}"])
            if length in (31, 201):
                for index, block in enumerate(blocks):
                    close(block, golden[f"block.{length}.{index}"], 2e-5, f"block {index} at {length} frames")
            close(hidden, golden[f"encoder.{length}"], 2e-5, f"encoder at {length} frames")
            close(encoder.ctc_logits(hidden), golden[f"ctc_logits.{length}"], 2e-5, f"CTC logits at {length} frames")
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def check_projector(golden: Golden) -> None:
    for length in LENGTHS:
        rows = golden.model.projector(golden[f"encoder.{length}"])
        close(rows, golden[f"projector.{length}"], 2e-5, f"projector at {length} frames")


@torch.inference_mode()
def check_logits(golden: Golden) -> None:
    for length in LENGTHS:
        logits = golden.model(golden[f"input_ids.{length}"], golden[f"features.{length}"])
        close(logits, golden[f"logits.{length}"], 1e-5, f"logits at {length} frames")


@torch.inference_mode()
def check_greedy(golden: Golden) -> None:
    """With the cache; without it, the whole sequence is computed again for each token."""
    ids, expected = golden["input_ids.201"], golden["greedy.201"][0].tolist()
    rows = golden.model.audio_rows(golden["features.201"])
    cached = greedy_search(golden.model, golden.model.embed(ids, rows), None, end=(), max_new_tokens=len(expected))
    assert cached == [expected], f"greedy with cache: {cached}"
    for token in expected:
        logits = golden.model.language_model(golden.model.embed(ids, rows))
        assert logits[0, -1].argmax() == token, "greedy without cache"
        ids = torch.cat((ids, torch.tensor([[token]])), 1)


@torch.inference_mode()
def check_batch(golden: Golden) -> None:
    """Lengths 415, 63, 200, 201, 1 in one batch equal each alone, whatever the padding holds."""
    lengths = torch.tensor([415, 63, 200, 201, 1])
    generator = torch.Generator().manual_seed(1)
    items = [torch.randn(int(n), 160, generator=generator) for n in lengths]
    model, alone = golden.model, []
    for item in items:
        hidden = model.encoder(item[None])
        alone.append((hidden[0], model.projector(hidden)[0]))
    for padding in (0.0, 0.7, None):
        features = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)
        real = torch.arange(415) < lengths[:, None]
        other = (
            torch.randn(features.shape, generator=generator) * 5
            if padding is None
            else torch.full_like(features, padding)
        )
        features = torch.where(real[..., None], features, other)
        hidden, rows = model.encoder(features, lengths), model.audio_rows(features, lengths)
        for index, (single, single_rows) in enumerate(alone):
            n = int(lengths[index])
            close(hidden[index, :n], single, 1e-5, f"item {index} in a batch, padding {padding}")
            close(rows[index], single_rows, 1e-5, f"rows of item {index} in a batch, padding {padding}")
            assert not hidden[index, n:].any(), "the encoder's output is not zero beyond a length"


@torch.inference_mode()
def check_batch_features(golden: Golden) -> None:
    """A recording beside a longer one has the features that it has alone."""
    waveforms = [golden[f"waveform.{n}"][0] for n in (16000, 4799, 257)]
    features, lengths = batch_features(waveforms)
    assert lengths.tolist() == [50, 15, 1]
    for index, waveform in enumerate(waveforms):
        n = int(lengths[index])
        close(features[index, :n], input_features(waveform), 0, f"features of item {index} in a batch")
        assert not features[index, n:].any()


@torch.no_grad()
def check_oracle(golden: Golden) -> None:
    """float64 against the definition written a second time: odd shapes, an even kernel, untied head, no multiplier of one."""
    for seed, (settings, frames) in enumerate(
        (
            ({}, 37),
            ({"encoder": {"conv_kernel_size": 14, "num_layers": 5, "context_size": 9}, "tied": False}, 31),
            ({"encoder": {"num_layers": 2}, "projector": {"cross_attention_frequency": 2}, "text": {"attention_multiplier": 0.7}}, 16),
            ({"encoder": {"num_layers": 1}, "text": {"num_key_value_heads": 1}}, 1),
        )
    ):  # fmt: skip
        config = tiny_config(**settings)
        model = random_model(config, seed, torch.float64)
        weights, about = model.state_dict(), oracle_config(config)
        features = torch.randn(frames, 160, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        hidden = oracle.encoder(features, weights, about["encoder_config"])
        close(model.encoder(features[None])[0], hidden, 1e-11, f"encoder in float64, case {seed}")
        rows = oracle.projector(hidden, weights, about["projector_config"], 15)
        close(model.projector(hidden[None])[0], rows, 1e-11, f"projector in float64, case {seed}")
        ids = prompt_ids(len(rows), config, seed)
        expected = oracle.logits(ids[0], features, weights, about)
        close(model(ids, features[None])[0], expected, 1e-11, f"logits in float64, case {seed}")


@torch.inference_mode()
def check_search(golden: Golden) -> None:
    """Greedy and beam search of a padded batch, with the cache, against plain ones that keep whole sequences."""
    config = tiny_config(tied=False, text={"embedding_multiplier": 3.0})  # attention is peaked and choices vary
    model = random_model(config, 3, torch.float64)
    generator = torch.Generator().manual_seed(5)
    lengths = torch.tensor([40, 23, 7])
    features = torch.randn(3, 40, 160, generator=generator, dtype=torch.float64)
    rows = model.audio_rows(features, lengths)
    prompts = [prompt_ids(len(item), config, seed)[0] for seed, item in enumerate(rows)]
    longest = max(map(len, prompts))
    ids = torch.stack([torch.cat((torch.zeros(longest - len(p), dtype=torch.long), p)) for p in prompts])
    mask = torch.stack([torch.arange(longest) >= longest - len(p) for p in prompts])
    embeddings = model.embed(ids, rows)

    def step(item: int, tokens: list[int]) -> Tensor:
        text = model.language_model.model.embed_tokens(torch.tensor([tokens], dtype=torch.long))
        prompt = model.embed(prompts[item][None], [rows[item]])
        return model.language_model(torch.cat((prompt, text), 1))[0, -1].log_softmax(-1)

    found = greedy_search(model, embeddings, mask, end=(), max_new_tokens=12)
    assert len({tuple(one) for one in found}) == 3 and all(len(set(one)) > 4 for one in found), "choices do not vary"
    for item in range(3):
        tokens: list[int] = []
        for _ in range(12):
            tokens.append(int(step(item, tokens).argmax()))
        assert found[item] == tokens, f"greedy of item {item} in a padded batch: {found[item]}, alone {tokens}"

    end = found[0][7]  # a symbol that does come: hypotheses end early
    stopped = greedy_search(model, embeddings, mask, end=(end,), max_new_tokens=12)
    for item in range(3):
        cut = found[item].index(end) if end in found[item] else 12
        assert stopped[item] == found[item][:cut], "greedy does not stop at the end symbol"
    for length_penalty in (1.0, 0.5):
        best, scores = beam_search(
            model, embeddings, mask, end=(end,), max_new_tokens=9, beams=3, length_penalty=length_penalty
        )
        for item in range(3):
            tokens, score = plain_beam_search(lambda t, item=item: step(item, t), {end}, 9, 3, length_penalty)
            assert best[item] == tokens, f"beam search of item {item}: {best[item]}, not {tokens}"
            assert abs(scores[item] - score) < 1e-5, f"beam score of item {item}: {scores[item]}, not {score}"


def plain_beam_search(
    step: Callable[[list[int]], Tensor], end: set[int], steps: int, beams: int, penalty: float
) -> tuple[list[int], float]:
    """Beam search over whole sequences, one item, lists and sorting only."""
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, steps + 1):
        extended = [
            (score + value, [*tokens, symbol])
            for score, tokens in running
            for symbol, value in enumerate(step(tokens).tolist())
        ]
        extended = sorted(extended, key=lambda one: -one[0])[: 2 * beams]
        running = []
        for rank, (score, tokens) in enumerate(extended):
            if tokens[-1] in end or length == steps:
                if rank < beams:
                    finished.append((score / length**penalty, tokens[:-1] if tokens[-1] in end else tokens))
            elif len(running) < beams:
                running.append((score, tokens))
        finished = sorted(finished, key=lambda one: -one[0])[:beams]
        if not running or (len(finished) == beams and running[0][0] / length**penalty <= finished[-1][0]):
            break
    return finished[0][1], finished[0][0]


@torch.inference_mode()
def check_naming(golden: Golden) -> None:
    """3.3 names, 3.2 names and the names transformers 5.x has in memory: the same tensors, bit for bit, and back."""
    import tempfile

    reference = golden.model.state_dict()
    with tempfile.TemporaryDirectory() as name:
        memory = Path(name) / "memory"
        memory.mkdir()
        (memory / "config.json").write_text((golden.folder / "checkpoint" / "config.json").read_text())
        save_file({name_5(key): value for key, value in reference.items()}, memory / "model.safetensors")
        folders = [golden.folder / "checkpoint", golden.folder / "checkpoint_3_2_names", memory]
        for names in ("3.3", "3.2"):
            save_checkpoint(golden.model, Path(name) / names, names=names)
            folders.append(Path(name) / names)
        save_checkpoint(golden.model, Path(name) / "sharded", max_shard_bytes=200_000)
        assert len(list((Path(name) / "sharded").glob("*.safetensors"))) > 3
        folders.append(Path(name) / "sharded")
        for folder in folders:
            loaded = load_model(folder).state_dict()
            assert loaded.keys() == reference.keys()
            for key, value in reference.items():
                assert torch.equal(value, loaded[key]), f"{folder.name}: {key} differs"
        published = set(load_file(golden.folder / "checkpoint" / "model.safetensors"))
        assert set(load_file(Path(name) / "3.3" / "model.safetensors")) == published, "the export's names"
        published = set(load_file(golden.folder / "checkpoint_3_2_names" / "model.safetensors"))
        assert set(load_file(Path(name) / "3.2" / "model.safetensors")) == published, "the export's 3.2 names"
        assert read_config(Path(name) / "3.3") == read_config(golden.folder / "checkpoint")
        encoder = load_encoder(golden.folder / "checkpoint_3_2_names")
        close(encoder(golden["features.31"]), golden["encoder.31"], 2e-5, "the encoder alone")


def name_5(name: str) -> str:
    """The name that transformers 5.x has in memory."""
    if name.startswith("language_model.model."):
        return "model.language_model." + name.removeprefix("language_model.model.")
    return name.removeprefix("language_model.") if name.startswith("language_model.") else "model." + name


@torch.inference_mode()
def check_statistics(golden: Golden) -> None:
    """BatchNorm's buffers come from the file: another running variance is another output."""
    import tempfile

    tensors = load_file(golden.folder / "checkpoint" / "model.safetensors")
    key = "encoder.layers.1.conv.batch_norm.running_var"
    tensors[key] = tensors[key] * 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text((golden.folder / "checkpoint" / "config.json").read_text())
        save_file(tensors, folder / "model.safetensors")
        changed = load_encoder(folder)(golden["features.31"])
    assert float((changed - golden["encoder.31"]).abs().max()) > 1e-2, "running_var of the file is not used"


def write_adapter(
    folder: Path, rank: int, alpha: float, prefix: str, layers: int, config, seed: int = 0
) -> dict[str, Tensor]:
    """Adapter files for q_proj and v_proj as PEFT writes them; returns the deltas alpha / rank * B A by weight name."""
    generator = torch.Generator().manual_seed(seed)
    text, tensors, deltas = config.text, {}, {}
    for layer in range(layers):
        for module, heads in (("q_proj", text.num_attention_heads), ("v_proj", text.num_key_value_heads)):
            name = f"language_model.model.layers.{layer}.self_attn.{module}"
            a = torch.randn(rank, text.hidden_size, generator=generator)
            b = torch.randn(heads * text.head_width, rank, generator=generator)
            tensors[f"{prefix}{name}.lora_A.weight"], tensors[f"{prefix}{name}.lora_B.weight"] = a, b
            deltas[f"{name}.weight"] = torch.einsum("or,ri->oi", b.double(), a.double()) * alpha / rank
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return deltas


def check_adapter(golden: Golden) -> None:
    """Merged weights are W + alpha / r B A, with and without PEFT's prefix; the rest is untouched."""
    import tempfile

    reference = golden.model.state_dict()
    for prefix in ("base_model.model.", ""):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "checkpoint"
            save_checkpoint(golden.model, folder)
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "has_lora_adapter": True}))
            deltas = write_adapter(folder, 4, 2.0, prefix, 2, golden.model.config)
            merged = load_model(folder)
            assert not merged.config.has_lora_adapter
            for key, value in merged.state_dict().items():
                close(value, reference[key].double() + deltas.get(key, 0), 1e-6, f"{key} with the adapter")
            ignored = load_model(folder, adapter="ignore").state_dict()
            assert all(torch.equal(ignored[key], reference[key]) for key in deltas)


def check_blocked_attention(golden: Golden) -> None:
    """Value and every gradient against the definition, on odd sizes, with and without a mask, in float64."""
    generator = torch.Generator().manual_seed(0)
    for batch, time, heads, width, context in ((1, 1, 1, 3, 5), (2, 5, 2, 4, 5), (2, 13, 3, 5, 4), (3, 8, 1, 2, 8)):
        shape = (batch, time, heads, width)
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]
        inputs.append(torch.randn(2 * context - 1, width, generator=generator, dtype=torch.float64).requires_grad_())
        lengths = torch.randint(1, time + 1, (batch,), generator=generator)
        real = torch.arange(time) < lengths[:, None]
        for mask in (None, real):
            keep = torch.ones(batch, time, dtype=torch.bool) if mask is None else mask
            weight = torch.randn(batch, time, heads * width, generator=generator, dtype=torch.float64) * keep[..., None]
            results = []
            for function in (blocked_attention, blocked_attention_naive):
                out = function(*inputs, context=context, mask=mask)
                results.append([out * keep[..., None], *torch.autograd.grad((out * weight).sum(), inputs)])
            for what, ours, theirs in zip(("value", "dq", "dk", "dv", "dpositions"), *results, strict=True):
                close(ours, theirs, 1e-12, f"blocked attention, {what}, time {time}, context {context}")


CHECKS = [  # the quickest to see most faults first
    check_features,
    check_encoder,
    check_projector,
    check_logits,
    check_greedy,
    check_blocked_attention,
    check_oracle,
    check_search,
    check_batch,
    check_batch_features,
    check_adapter,
    check_statistics,
    check_naming,
    check_placeholders,
]
