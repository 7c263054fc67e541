"""What a checkpoint folder may hold, and the sentence that each fault in it ends in."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from geomix.errors import UserError
from geomix.models.granite import load_checkpoint, load_encoder, save_checkpoint
from geomix.models.granite.checkpoint import load_model
from geomix.models.granite.config import parse_config
from geomix.models.granite.tensors import canonical_name, name_3_2
from tests.models.granite.checks import write_adapter
from tests.models.granite.tiny import random_model, tiny_config


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("granite") / "checkpoint"
    save_checkpoint(random_model(tiny_config(tied=False)), folder)
    return folder


@pytest.fixture
def folder(source, tmp_path):
    return shutil.copytree(source, tmp_path / "checkpoint")


def change_config(folder, section=None, **values):
    config = json.loads((folder / "config.json").read_text())
    (config[section] if section else config).update(values)
    (folder / "config.json").write_text(json.dumps(config))


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_missing_tensor_is_named(folder):
    change_tensors(folder, lambda t: t.pop("encoder.layers.2.conv.batch_norm.running_mean"))
    with pytest.raises(UserError, match=r"encoder\.layers\.2\.conv\.batch_norm\.running_mean is missing"):
        load_model(folder)


def test_an_unexpected_tensor_is_named(folder):
    change_tensors(folder, lambda t: t.update({"encoder.layers.9.post_norm.bias": torch.zeros(24)}))
    with pytest.raises(UserError, match=r"encoder\.layers\.9\.post_norm\.bias is unexpected"):
        load_model(folder)
    with pytest.raises(UserError, match="unexpected"):
        load_encoder(folder)


def test_a_misshapen_tensor_is_named(folder):
    change_tensors(folder, lambda t: t.update({"projector.query": torch.zeros(1, 4, 32)}))
    with pytest.raises(UserError, match=r"projector\.query has shape \[1, 4, 32\], the config gives \[1, 3, 32\]"):
        load_model(folder)


def test_a_tensor_under_two_names_is_refused(folder):
    change_tensors(folder, lambda t: t.update({"lm_head.weight": t["language_model.lm_head.weight"].clone()}))
    with pytest.raises(UserError, match="two names"):
        load_model(folder)


def test_the_table_of_distances_that_some_files_carry_is_ignored(folder):
    change_tensors(folder, lambda t: t.update({"encoder.attention_dists": torch.zeros(16, 16, dtype=torch.long)}))
    load_model(folder)


def test_the_index_decides_which_shards_count(source, tmp_path):
    """Some 3.3 repositories hold two sets of shards."""
    model = load_model(source)
    save_checkpoint(model, tmp_path / "sharded", max_shard_bytes=60_000)
    decoy = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    save_file(decoy, tmp_path / "sharded" / "model.safetensors")
    save_file(decoy, tmp_path / "sharded" / "model-00001-of-00002.safetensors")
    loaded = load_model(tmp_path / "sharded").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())
    next((tmp_path / "sharded").glob("model-00002-of-*.safetensors")).unlink()
    with pytest.raises(UserError, match="the index names this file"):
        load_model(tmp_path / "sharded")


def test_tied_and_untied_heads(folder):
    untied = load_model(folder)
    assert untied.language_model.lm_head is not None
    change_config(folder, tie_word_embeddings=True)
    with pytest.raises(UserError, match="differs from the embedding table"):
        load_model(folder)
    change_tensors(folder, lambda t: t.pop("language_model.lm_head.weight"))
    assert load_model(folder).language_model.lm_head is None
    change_config(folder, tie_word_embeddings=False)
    with pytest.raises(UserError, match=r"language_model\.lm_head\.weight is missing"):
        load_model(folder)


def test_an_announced_adapter_must_be_there_and_whole(folder):
    change_config(folder, has_lora_adapter=True)
    with pytest.raises(UserError, match="adapter_model.safetensors: not here"):
        load_model(folder)
    load_model(folder, adapter="ignore")
    write_adapter(folder, 4, 2.0, "", layers=1, config=tiny_config())  # the model has two layers
    with pytest.raises(UserError, match=r"layers\.1\.self_attn\.q_proj\.weight is missing"):
        load_model(folder)
    write_adapter(folder, 4, 2.0, "", layers=2, config=tiny_config())
    merged = load_model(folder)
    with pytest.raises(ValueError, match="the adapter for audio is merged"):
        merged(torch.tensor([[1, 2]]))
    assert load_model(folder, adapter="ignore")(torch.tensor([[1, 2]])).isfinite().all()
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "r": 8}))
    with pytest.raises(UserError, match="rank 8"):
        load_model(folder)
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "use_dora": True}))
    with pytest.raises(UserError, match="use_dora"):
        load_model(folder)
    # a merged model is exported as one without an adapter
    save_checkpoint(merged, folder.parent / "merged")
    again = load_model(folder.parent / "merged")
    assert again.config.adapter_merged and not again.config.has_lora_adapter
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in merged.state_dict().items())


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("encoder_config", "use_max_pos_emb_in_pos_emb_calc", False),
        ("projector_config", "hidden_act", "gelu_new"),
        ("projector_config", "position_embedding_type", "relative_key"),
        ("text_config", "rope_scaling", {"type": "linear", "factor": 2.0}),
        ("text_config", "attention_bias", True),
        (None, "model_type", "granite_speech_plus"),
        (None, "cat_hidden_layers", [3]),
    ],
)
def test_a_setting_with_other_arithmetic_is_refused(folder, section, key, value):
    change_config(folder, section, **{key: value})
    with pytest.raises(UserError, match=key):
        load_model(folder)


def test_config_both_ways():
    """3.2 keeps the window in the projector's section, 5.x the angle's base in rope_parameters and other encoder names."""
    old = parse_config(
        {
            "model_type": "granite_speech",
            "audio_token_index": 7,
            "encoder_config": {"num_layers": 10, "output_dim": 42},
            "projector_config": {
                "model_type": "granite_speech_qformer",
                "window_size": 30,
                "downsample_rate": 6,
                "llm_dim": 4096,
            },
            "text_config": {"rope_theta": 1e7, "tie_word_embeddings": False},
        }
    )
    assert (old.projector.window_size, old.projector.downsample_rate, old.encoder.max_pos_emb) == (30, 6, 512)
    assert (old.audio_token_id, old.text.rope_theta, old.tie_word_embeddings) == (7, 1e7, False)
    new = parse_config(
        {
            "model_type": "granite_speech",
            "audio_token_id": 9,
            "window_size": 15,
            "encoder_config": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_mel_bins": 160, "dim_head": None},
            "text_config": {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
        }
    )  # fmt: skip
    assert (new.encoder.hidden_dim, new.encoder.num_layers, new.encoder.dim_head) == (64, 3, 16)
    assert (new.audio_token_id, new.text.rope_theta) == (9, 5e5)


def test_absent_and_damaged_files_end_in_a_sentence(tmp_path, folder):
    with pytest.raises(UserError, match=r"config\.json: no such file"):
        load_model(tmp_path / "nowhere")
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(UserError, match="not a safetensors file"):
        load_model(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="put the checkpoint's"):
        load_model(folder)
    with pytest.raises(UserError, match=r"tokenizer\.json: not here"):
        load_checkpoint(folder)


def test_an_export_does_not_overwrite(folder):
    with pytest.raises(UserError, match="exists already"):
        save_checkpoint(load_model(folder), folder)


def test_every_canonical_name_has_one_name_in_3_2():
    names = list(random_model(tiny_config(tied=False)).state_dict())
    assert [canonical_name(name_3_2(name)) for name in names] == names
    assert len({name_3_2(name) for name in names}) == len(names)
    assert canonical_name("encoder.rnn_tr.0.ff1.fn.norm.weight") == "encoder.rnn_tr.0.ff1.fn.norm.weight"


def test_published_sizes():
    """Counts of the published configs: encoder and projector, by shape alone."""
    from geomix.models.granite import EncoderConfig, GraniteEncoder, ProjectorConfig
    from geomix.models.granite.projector import Projector

    def parameters(module):
        return sum(p.numel() for p in module.parameters())

    with torch.device("meta"):
        assert round(parameters(GraniteEncoder(EncoderConfig(num_layers=10, output_dim=42))) / 1e6, 1) == 274.8
        assert round(parameters(GraniteEncoder(EncoderConfig(num_layers=16, output_dim=256))) / 1e6, 1) == 440.0
        assert round(parameters(GraniteEncoder(EncoderConfig(num_layers=16, output_dim=348))) / 1e6, 1) == 440.2
        published = ProjectorConfig(1024, 2, 16, 4096, 1e-12, 1, 1024)
        assert round(parameters(Projector(published, 2048)) / 1e6, 1) == 35.7
        assert round(parameters(Projector(published, 4096)) / 1e6, 1) == 37.8
        assert len(GraniteEncoder(EncoderConfig(num_layers=16, output_dim=256)).state_dict()) == 534
        assert len(Projector(published, 2048).state_dict()) == 57
