"""Half precision, gradients and training mode of the encoder."""

import pytest
import torch

from geomix.errors import UserError
from geomix.models.granite import EncoderConfig, GraniteEncoder, GraniteEncoderCTC, GraniteEncoderCTCConfig
from tests.models.granite.tiny import random_model, tiny_config


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 6e-2), (torch.float16, 1e-2)])
def test_half_precision_stays_near_fp32_over_16_layers(dtype, tolerance):
    model = random_model(tiny_config(encoder={"num_layers": 16, "hidden_dim": 32, "num_heads": 2, "dim_head": 16}))
    features = torch.randn(1, 53, 160, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        hidden = model.encoder(features)
        rows = model.projector(hidden)
        half = model.to(dtype)
        hidden_half = half.encoder(features.to(dtype))
        rows_half = half.projector(hidden_half)
    for ours, exact in ((hidden_half, hidden), (rows_half, rows)):
        assert ours.dtype == dtype and ours.isfinite().all()
        assert (ours.float() - exact).norm() / exact.norm() <= tolerance


def batch(generator, vocab=12):
    lengths = torch.tensor([97, 61, 40])  # 48, 30 and 20 encoder frames: partial last windows of 16
    features = torch.randn(3, 97, 80, generator=generator) * 2 + 1
    tokens = torch.randint(1, vocab, (3, 6), generator=generator)
    token_lengths = torch.tensor([6, 4, 2])
    return features, lengths, tokens * (torch.arange(6) < token_lengths[:, None]), token_lengths


def small(**settings):
    torch.manual_seed(0)
    config = GraniteEncoderCTCConfig(
        **{"vocab": 12, "blocks": 4, "width": 24, "heads": 2, "context": 16, "dropout": 0.0, **settings}
    )
    model = GraniteEncoderCTC(config)
    model.set_normalisation(torch.full((80,), 1.0), torch.full((80,), 2.0))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_both_heads_are_finite(dtype):
    model = small(dropout=0.1).train()
    inputs = batch(torch.Generator().manual_seed(1))
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        losses = model(*inputs)
    losses["loss"].backward()
    assert losses["loss_final"].isfinite() and losses["loss_middle"].isfinite()
    assert torch.allclose(losses["loss"], 0.7 * losses["loss_final"] + 0.3 * losses["loss_middle"])
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name


def test_an_item_in_a_training_batch_does_not_depend_on_padding():
    """In training too: BatchNorm's statistics are those of real frames."""
    features, lengths, tokens, token_lengths = batch(torch.Generator().manual_seed(2))
    other = torch.where(torch.arange(97)[None, :, None] < lengths[:, None, None], features, torch.tensor(9.0))
    first, second = (small().train()(x, lengths, tokens, token_lengths)["loss"] for x in (features, other))
    assert torch.allclose(first, second, atol=1e-5)
    model = small().eval()
    together, frames = model.log_probs(features, lengths)
    for index, length in enumerate(lengths.tolist()):
        alone, n = model.log_probs(features[index : index + 1, :length], lengths[index : index + 1])
        assert n.item() == frames[index] == length // 2
        assert torch.allclose(alone[0], together[index, : length // 2], atol=1e-5)


def test_it_learns():
    model = small().train()
    inputs = batch(torch.Generator().manual_seed(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(*inputs)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    with torch.no_grad():
        log_probs, frames = model.log_probs(*inputs[:2])
    for index in range(3):
        path = torch.unique_consecutive(log_probs[index, : frames[index]].argmax(-1))
        assert path[path != 0].tolist() == inputs[2][index, : inputs[3][index]].tolist()


def test_configuration_is_strict():
    assert GraniteEncoderCTCConfig.from_dict(small().config.to_dict()) == small().config
    with pytest.raises(UserError, match="'widht'"):
        GraniteEncoderCTCConfig.from_dict({"vocab": 9, "widht": 3})
    for settings, word in (
        ({"heads": 5}, "heads"),
        ({"middle_weight": 1.0}, "middle_weight"),
        ({"blocks": 1}, "middle"),
    ):
        with pytest.raises(UserError, match=word):
            small(**settings)
    with pytest.raises(UserError, match="context_size"):
        EncoderConfig(context_size=600)


def test_self_conditioning_fires_once_after_the_middle_block():
    """After block layers // 2 counted from 1; never with one layer."""
    for layers, after in ((1, None), (2, 1), (4, 2), (5, 2)):
        encoder = GraniteEncoder(
            EncoderConfig(num_layers=layers, hidden_dim=8, num_heads=1, dim_head=8, output_dim=5, context_size=4)
        ).eval()
        x = torch.randn(1, 6, 160)
        with torch.no_grad():
            seen = []
            for layer in encoder.layers:
                layer.register_forward_hook(lambda _m, _i, out, seen=seen: seen.append(out))
            before = encoder(x)
            first = list(seen)
            seen.clear()
            encoder.out_mid.bias += 1.0
            after_change = encoder(x)
            changed = [not torch.equal(a, b) for a, b in zip(first, seen, strict=True)]
        assert changed == [after is not None and index > after for index in range(1, layers + 1)]
        assert torch.equal(before, after_change) == (after is None)
