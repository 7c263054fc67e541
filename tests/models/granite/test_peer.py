"""Granite Speech beside transformers 4.57.1 itself, with the same weights: random configurations in float32 and float64."""

import json
import random

import numpy as np
import pytest
import torch

pytest.importorskip(
    "transformers", minversion="4.57.1", reason="transformers 4.57.1 is not here: see requirements-peer.txt"
)

import transformers
from transformers import GraniteSpeechConfig, GraniteSpeechForConditionalGeneration

from geomix.models.granite import read_config, save_checkpoint
from geomix.models.granite.checkpoint import load_model
from geomix.models.granite.features import batch_features, encoder_frames, input_features
from geomix.models.granite.search import beam_search, greedy_search
from geomix.speech.normalisers import named
from tests.models.granite import oracle
from tests.models.granite.checks import close, write_adapter
from tests.models.granite.tiny import oracle_config, prompt_ids, random_model, tiny_config
from tests.models.granite.tiny_checkpoint import make_checkpoint

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        transformers.__version__ != "4.57.1", reason="only transformers 4.57.1 divides by logits_scaling"
    ),
]


def peer_of(model):
    """The transformers model of ours, same weights, same dtype, eval mode."""
    peer = GraniteSpeechForConditionalGeneration(GraniteSpeechConfig(**model.config.to_json()))
    missing, unexpected = peer.load_state_dict(model.state_dict(), strict=False)
    tied = ["language_model.lm_head.weight"] if model.config.tie_word_embeddings else []
    assert (missing, unexpected) == (tied, [])
    peer.tie_weights()
    # the weights' dtype only: .to() would also turn the rotary frequencies, which transformers keeps in fp32
    for parameter in [*peer.parameters(), *peer.encoder.buffers()]:
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(model.dtype)
    return peer.eval()


def random_config(seed):
    """Layers, heads, kernel, context, window, multipliers, heads that share keys, tied or not."""
    rng = random.Random(seed)
    heads = rng.choice([1, 2, 3])
    context = rng.choice([7, 16, 40])
    kv = rng.choice([1, 2])
    text_heads = kv * rng.choice([1, 2])
    rate = rng.choice([3, 5])
    q_heads = rng.choice([1, 2, 4])
    return tiny_config(
        encoder={
            "num_layers": rng.choice([1, 2, 4, 5]), "hidden_dim": rng.choice([16, 24]), "num_heads": heads,
            "dim_head": rng.choice([8, 20]), "output_dim": rng.choice([5, 30]), "context_size": context,
            "max_pos_emb": context + rng.choice([0, 9]), "conv_kernel_size": rng.choice([3, 14, 15]),
            "conv_expansion_factor": rng.choice([1, 2]), "feedforward_mult": rng.choice([2, 4]),
        },
        projector={
            "hidden_size": 8 * q_heads, "num_attention_heads": q_heads, "num_hidden_layers": rng.choice([1, 2, 3]),
            "cross_attention_frequency": rng.choice([1, 2]), "window_size": rate * rng.choice([1, 3]), "downsample_rate": rate,
        },
        text={
            "num_key_value_heads": kv, "num_attention_heads": text_heads, "hidden_size": 8 * text_heads,
            "num_hidden_layers": rng.choice([1, 3]), "rope_theta": rng.choice([1e4, 1e7]),
            "embedding_multiplier": rng.choice([1.0, 12.0]), "attention_multiplier": rng.choice([0.0078125, 0.5, 1.0]),
            "residual_multiplier": rng.choice([0.22, 1.0]), "logits_scaling": rng.choice([1.0, 4.0, 16.0]),
        },
        tied=rng.random() < 0.5,
    )  # fmt: skip


def with_blocks(encoder, features):
    """The encoder's output, and the output of each block."""
    blocks = []
    # the peer adds the self-conditioning in place: without a copy the middle block would show the sum
    hooks = [layer.register_forward_hook(lambda _m, _i, out: blocks.append(out.clone())) for layer in encoder.layers]
    hidden = encoder(features)
    for hook in hooks:
        hook.remove()
    return hidden, blocks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("seed", range(8))
@torch.inference_mode()
def test_random_configurations(seed, dtype):
    config = random_config(seed)
    model = random_model(config, seed, dtype)
    peer = peer_of(model)
    fine, rows_fine, coarse = (2e-5, 2e-5, 1e-4) if dtype == torch.float32 else (1e-11, 1e-11, 5e-5)
    generator = torch.Generator().manual_seed(seed)
    for batch, frames in ((1, 1), (2, 15), (1, 41), (2, 48)):
        features = torch.randn(batch, frames, 160, generator=generator, dtype=torch.float64).to(dtype)
        hidden, blocks = with_blocks(model.encoder, features)
        peer_hidden, peer_blocks = with_blocks(peer.encoder, features)
        for index, (ours, theirs) in enumerate(zip(blocks, peer_blocks, strict=True)):
            close(ours, theirs, fine, f"block {index} at {frames} frames")
        close(hidden, peer_hidden, fine, f"encoder at {frames} frames")
        close(model.encoder.ctc_logits(hidden), peer.encoder.out(peer_hidden), fine, "CTC logits")
        rows = model.projector(peer_hidden)
        close(rows, peer.projector(peer_hidden), rows_fine, "projector")
        ids = torch.cat([prompt_ids(rows.shape[1], config, seed)] * batch)
        logits = peer(input_ids=ids, input_features=features).logits
        close(model(ids, features), logits, coarse, f"logits at {frames} frames")


@torch.no_grad()
def test_the_oracle_is_the_peers_arithmetic():
    config = tiny_config(encoder={"conv_kernel_size": 14}, tied=False)
    model = random_model(config, 0, torch.float64)
    peer, about = peer_of(model), oracle_config(config)
    features = torch.randn(1, 37, 160, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    hidden = peer.encoder(features)
    close(oracle.encoder(features[0], model.state_dict(), about["encoder_config"]), hidden[0], 1e-12, "encoder")
    rows = oracle.projector(hidden[0], model.state_dict(), about["projector_config"], 15)
    close(rows, peer.projector(hidden)[0], 1e-12, "projector")
    ids = prompt_ids(len(rows), config)
    expected = peer(input_ids=ids, input_features=features).logits[0]
    # transformers computes RMSNorm and rotary angles in fp32 even in a float64 model
    close(oracle.logits(ids[0], features[0], model.state_dict(), about), expected, 1e-5, "logits")


@torch.inference_mode()
def test_unmasked_mode_is_the_peers_batch():
    """Padding leaks in transformers: the same leak in `masked=False`, another result in the default."""
    model = random_model(tiny_config(), 1)
    peer = peer_of(model)
    waveforms = [torch.randn(n, generator=torch.Generator().manual_seed(n)) * 0.1 for n in (9000, 4000)]
    extractor = transformers.GraniteSpeechFeatureExtractor()
    theirs = extractor([waveform.clone() for waveform in waveforms])
    features, lengths = batch_features(waveforms, masked=False)
    close(features, theirs["input_features"], 1e-5, "features of a padded batch")
    close(model.encoder(features, lengths, masked=False), peer.encoder(features), 2e-5, "encoder of a padded batch")
    rows, peer_rows = model.audio_rows(features, lengths, masked=False), peer.get_audio_features(features)
    mask = theirs["input_features_mask"]
    for item in range(2):
        close(rows[item], peer_rows[item][mask[item]], 2e-5, f"rows of item {item}")
    assert float((model.encoder(features, lengths)[1, :12] - peer.encoder(features)[1, :12]).abs().max()) > 0.1


@torch.inference_mode()
def test_features_and_counts_of_the_peers_extractor():
    extractor = transformers.GraniteSpeechFeatureExtractor()
    for samples in (257, 300, 319, 320, 321, 479, 480, 4799, 4800, 16000, 16160, 47999, 48000):
        waveform = torch.randn(1, samples, generator=torch.Generator().manual_seed(samples)) * 0.2
        theirs = extractor(waveform.clone())
        close(input_features(waveform), theirs["input_features"], 1e-5, f"features of {samples} samples")
        assert theirs["audio_embed_sizes"] == [-(-encoder_frames(samples) // 15) * 3]


@torch.inference_mode()
@pytest.mark.parametrize("seed", range(3))
def test_generation(seed):
    """Greedy and beam search with the peer's `generate`; an end symbol that does come."""
    config = tiny_config(tied=False, text={"embedding_multiplier": 3.0})
    model = random_model(config, seed)
    peer = peer_of(model)
    features = torch.randn(2, 33, 160, generator=torch.Generator().manual_seed(seed))
    ids = torch.cat([prompt_ids(9, config, one) for one in (seed, seed + 1)])
    embeddings = model.embed(ids, model.audio_rows(features))
    common = {"input_ids": ids, "input_features": features, "attention_mask": torch.ones_like(ids), "do_sample": False}
    free = peer.generate(**common, max_new_tokens=12, eos_token_id=-1, pad_token_id=0)[:, ids.shape[1] :]
    assert greedy_search(model, embeddings, None, end=(), max_new_tokens=12) == free.tolist()
    end = int(free[0, 6])
    for beams, penalty in ((2, 1.0), (4, 1.0), (4, 0.3)):
        theirs = peer.generate(
            **common, max_new_tokens=10, num_beams=beams, length_penalty=penalty, eos_token_id=end, pad_token_id=0,
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        ours, scores = beam_search(
            model, embeddings, None, end=(end,), max_new_tokens=10, beams=beams, length_penalty=penalty
        )
        for item in range(2):
            sequence = theirs.sequences[item, ids.shape[1] :].tolist()
            sequence = sequence[: sequence.index(end)] if end in sequence else sequence
            assert ours[item] == sequence[: len(ours[item])] and not any(sequence[len(ours[item]) :])
            assert abs(scores[item] - float(theirs.sequences_scores[item])) < 1e-4


@torch.inference_mode()
def test_the_peer_reads_our_export(tmp_path):
    model = random_model(tiny_config(), 2)
    save_checkpoint(model, tmp_path / "export", max_shard_bytes=100_000)
    peer = GraniteSpeechForConditionalGeneration.from_pretrained(tmp_path / "export").eval()
    ids, features = prompt_ids(9, model.config), torch.randn(1, 31, 160)
    close(model(ids, features), peer(input_ids=ids, input_features=features).logits, 2e-5, "logits of the export")
    peer.save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    assert read_config(tmp_path / "theirs") == model.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


@torch.inference_mode()
def test_merged_adapter_is_pefts(tmp_path):
    model = random_model(tiny_config(), 3)
    save_checkpoint(model, tmp_path / "checkpoint")
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    (tmp_path / "checkpoint" / "config.json").write_text(json.dumps({**config, "has_lora_adapter": True}))
    write_adapter(tmp_path / "checkpoint", 4, 2.0, "base_model.model.", 2, model.config)
    merged = load_model(tmp_path / "checkpoint")
    adapter = json.loads((tmp_path / "checkpoint" / "adapter_config.json").read_text())
    adapter["base_model_name_or_path"] = str(tmp_path / "checkpoint")  # as transformers writes it
    (tmp_path / "checkpoint" / "adapter_config.json").write_text(json.dumps(adapter))
    peer = GraniteSpeechForConditionalGeneration.from_pretrained(tmp_path / "checkpoint").eval()
    peer.enable_adapters()
    ids, features = prompt_ids(9, model.config), torch.randn(1, 31, 160, generator=torch.Generator().manual_seed(0))
    theirs = peer(input_ids=ids, input_features=features).logits
    close(merged(ids, features), theirs, 2e-5, "logits with the adapter")
    assert float((model(ids, features) - theirs).abs().max()) > 1e-2, "the adapter does nothing"


def test_prompts_are_the_processors(tmp_path):
    from geomix.models.granite import Transcriber, load_checkpoint

    model, tokenizer = load_checkpoint(make_checkpoint(tmp_path / "tiny"))
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(
        tmp_path / "tiny", eos_token="<|end_of_text|>", pad_token="<|end_of_text|>", padding_side="left"
    )
    processor = transformers.GraniteSpeechProcessor(transformers.GraniteSpeechFeatureExtractor(), theirs)
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "<|audio|>what is said?"}]
    prompt = tokenizer.render("what is said?", "be brief")
    assert prompt == theirs.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    waveforms = [torch.randn(n, generator=torch.Generator().manual_seed(n)) * 0.1 for n in (16000, 5200)]
    batch = processor([prompt, prompt], [waveform.clone() for waveform in waveforms])
    ids, mask, _, _ = Transcriber(model, tokenizer, instruction="what is said?", system="be brief").inputs(waveforms)
    assert ids.tolist() == batch["input_ids"] and mask.int().tolist() == batch["attention_mask"]


def test_whisper_normaliser():
    """The package's normaliser is transformers' copy of Whisper's, given the same table of spellings."""
    import importlib.resources

    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    table = json.loads((importlib.resources.files("whisper_normalizer") / "normalizers" / "english.json").read_text())
    ours, theirs = named("whisper-english"), EnglishTextNormalizer(table)
    assert ours("Mr. Smith's colour, twenty-one dollars!") == "mister smith is color $21"
    words = (
        "MR SMITH WON'T COLOUR TWENTY ONE HUNDRED AND FIVE THE GREY O'CLOCK I'M UM OKAY NINETEEN NINETY FIRST".split()
    )
    rng = np.random.default_rng(0)
    for _ in range(200):
        text = " ".join(rng.choice(words, 8))
        assert ours(text) == theirs(text)
    assert named("letters")("“It's—well, 'tis” O’Clock_now") == "it's well tis o'clock now"
