"""Mixers: registry, exact counts, padding, causality, reach, gates, and attention against a loop."""

import pytest
import torch

from geomix.errors import UserError
from geomix.mixers import MIXERS, Frames, PairMixer, RelativeAttention, make_mixer

ARMS = {
    "attention": {"mixer": "attention", "heads": 4},
    "grassmann": {"mixer": "pair"},
    "symmetric": {"mixer": "pair", "kind": "symmetric"},
    "signed": {"mixer": "pair", "kind": "signed"},
    "geometric": {"mixer": "pair", "kind": "geometric"},
    "causal": {"mixer": "pair", "two_sided": False},
    "one offset": {"mixer": "pair", "one_offset_per_block": True},
    "bias where empty": {"mixer": "pair", "empty": "bias"},
    "paper form": {"mixer": "pair", "form": "paper"},
}


def frames_of(*lengths: int, width: int = 32, longest: int | None = None, dtype=torch.float32) -> Frames:
    return Frames.of(torch.tensor(lengths), longest or max(lengths), width, dtype=dtype)


@pytest.mark.parametrize(
    ("arm", "parameters"),
    [
        ("attention", 329_216),
        ("grassmann", 266_784),
        ("symmetric", 266_784),
        ("signed", 266_784),
        ("geometric", 267_040),
    ],
)
def test_parameter_counts_at_width_256(arm, parameters):
    assert sum(p.numel() for p in make_mixer(width=256, **ARMS[arm]).parameters()) == parameters


def test_an_empty_slot():
    assert make_mixer("none", 256) is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mixer": "atention"}, "atention"),
        ({"mixer": "pair", "ranks": 3}, "ranks"),
        ({"mixer": "attention", "rank": 3}, "rank"),
        ({"mixer": "none", "rank": 3}, "rank"),
        ({"mixer": "pair", "kind": "wegde"}, "wegde"),
        ({"mixer": "pair", "offsets": [0]}, "0"),
        ({"mixer": "pair", "offsets": [True, 2]}, "True"),
        ({"mixer": "pair", "offsets": 4}, "offsets 4"),
        ({"mixer": "pair", "rank": 8.5}, "rank 8.5"),
        ({"mixer": "pair", "rank": True}, "rank True"),
        ({"mixer": "pair", "min_sine": float("nan")}, "min_sine nan"),
        ({"mixer": "pair", "min_sine": 1.1}, "min_sine 1.1"),
        ({"mixer": "pair", "min_sine": "1e-3"}, "min_sine '1e-3'"),
        ({"mixer": "pair", "eps": 0}, "eps 0"),
        ({"mixer": "pair", "eps": float("nan")}, "eps nan"),
        ({"mixer": "multivector_attention", "heads": 0}, "heads 0"),
        ({"mixer": "multivector_attention", "heads": -1}, "heads -1"),
        ({"mixer": "pair", "empty": "nothing"}, "nothing"),
        ({"mixer": "pair", "rank": 1}, "rank 1"),
        ({"mixer": "attention", "heads": 5}, "heads 5"),
    ],
)
def test_mistakes_are_named(arguments, named):
    with pytest.raises(UserError, match=named):
        make_mixer(width=32, **arguments)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["fp32", "fp64"])
@pytest.mark.parametrize("arm", ARMS)
def test_padding_changes_no_real_frame(arm, dtype, tolerance, mode):
    torch.manual_seed(0)
    mixer = make_mixer(width=32, **ARMS[arm]).to(dtype).train(mode == "train")
    x = torch.randn(3, 45, 32, dtype=dtype)
    lengths = (45, 1, 19)
    together = mixer(x, frames_of(*lengths, dtype=dtype))
    x[1, 1:], x[2, 19:] = 1e4, -1e4
    loud = mixer(x, frames_of(*lengths, dtype=dtype))
    for row, length in enumerate(lengths):
        alone = mixer(x[row : row + 1, :length], frames_of(length, dtype=dtype))[0]
        for y in (together, loud):
            assert (y[row, :length] - alone).abs().max() < tolerance


@pytest.mark.parametrize("length", [1, 127, 128, 129, 257])
@pytest.mark.parametrize("arm", ["attention", "grassmann", "symmetric", "geometric"])
def test_no_nan_at_awkward_lengths(arm, length):
    """pytorch#153799: fused attention gave NaN for lengths that are no multiple of 128."""
    mixer = make_mixer(width=32, **ARMS[arm])
    x = torch.randn(2, length, 32, requires_grad=True)
    y = mixer(x, frames_of(length, max(1, length // 2)))
    y.square().mean().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in mixer.parameters())


def test_attention_is_the_loop():
    """Transformer-XL's score, frame by frame: (q_i + u) k_j + (q_i + v) W_pos R_{i-j}, over the real keys."""
    torch.manual_seed(1)
    heads, d, length = 2, 3, 6
    mixer = RelativeAttention(6, heads).double()
    frames = frames_of(5, width=6, longest=length, dtype=torch.float64)
    x = torch.randn(1, length, 6, dtype=torch.float64)
    y = torch.zeros(length, 6, dtype=torch.float64)
    q, k, v = (linear(x)[0].view(length, heads, d) for linear in (mixer.linear_q, mixer.linear_k, mixer.linear_v))
    for head in range(heads):
        for i in range(length):
            scores = []
            for j in range(5):
                distance = torch.tensor(float(i - j), dtype=torch.float64)
                rate = 10000 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
                position = torch.stack(((distance * rate).sin(), (distance * rate).cos()), -1).flatten()
                p = mixer.linear_pos(position).view(heads, d)[head]
                content = (q[i, head] + mixer.pos_bias_u[head]) @ k[j, head]
                scores.append((content + (q[i, head] + mixer.pos_bias_v[head]) @ p) / d**0.5)
            weights = torch.stack(scores).softmax(0)
            y[i, head * d : (head + 1) * d] = sum(w * v[j, head] for j, w in enumerate(weights))
    torch.testing.assert_close(mixer(x, frames)[0], mixer.linear_out(y), rtol=1e-12, atol=1e-12)


def test_a_causal_mixer_does_not_look_ahead():
    """The paper prints t + offset and calls it causal; partners must be earlier."""
    mixer, frames = PairMixer(16, rank=8, two_sided=False), frames_of(30, width=16)
    x = torch.randn(1, 30, 16)
    changed = x.clone()
    changed[:, 20:] = torch.randn(1, 10, 16)
    before, after = mixer(x, frames), mixer(changed, frames)
    assert torch.equal(before[:, :20], after[:, :20]) and not torch.equal(before[:, 20:], after[:, 20:])


@pytest.mark.parametrize(("block", "offset"), [(0, 1), (2, 4), (5, 16), (7, 2)])
def test_one_offset_per_block_takes_offset_l_mod_6(block, offset):
    mixer = make_mixer("pair", 16, block=block, rank=8, one_offset_per_block=True)
    x = torch.randn(1, 40, 16, dtype=torch.float64, requires_grad=True)
    y = mixer.double()(x, frames_of(40, width=16))
    (gradient,) = torch.autograd.grad(y[0, 20].sum(), x)
    assert gradient[0].abs().sum(-1).nonzero().flatten().tolist() == [20 - offset, 20, 20 + offset]


def test_reach_of_all_offsets_both_ways():
    x = torch.randn(1, 40, 16, dtype=torch.float64, requires_grad=True)
    y = PairMixer(16, rank=8).double()(x, frames_of(40, width=16))
    (gradient,) = torch.autograd.grad(y[0, 20].sum(), x)
    offsets = (1, 2, 4, 8, 12, 16)
    assert set(gradient[0].abs().sum(-1).nonzero().flatten().tolist()) == {
        20,
        *(20 + s * o for s in (1, -1) for o in offsets),
    }


@pytest.mark.parametrize("empty", ["zero", "bias"])
def test_frames_without_a_pair_and_padded_frames(empty):
    mixer = PairMixer(16, rank=8, empty=empty)
    frames = Frames.of(torch.tensor([1, 12]), 20)
    g = mixer.mixed(torch.randn(2, 20, 16), frames)
    without = mixer.project.bias if empty == "bias" else torch.zeros(16)
    for rows in (g[0], g[1, 12:]):  # a lone frame with its padding; padding behind a longer utterance
        assert torch.allclose(rows, without.expand_as(rows), atol=1e-6)
    assert not torch.allclose(g[1, 5], without, atol=1e-3)


def test_gate_forms():
    """Branch: (1 - alpha)(g - u), to be added to u; blend: alpha u + (1 - alpha) g, the paper's."""
    torch.manual_seed(0)
    branch = PairMixer(16, rank=8)
    blend = PairMixer(16, rank=8, blend=True)
    blend.load_state_dict(branch.state_dict())
    x, frames = torch.randn(2, 20, 16), frames_of(20, 13, width=16)
    g = branch.mixed(x, frames)
    alpha = torch.sigmoid(branch.gate(torch.cat((x, g), -1)))
    torch.testing.assert_close(blend(x, frames), alpha * x + (1 - alpha) * g)
    torch.testing.assert_close(x + branch(x, frames), blend(x, frames))


def test_swapping_the_sides_flips_only_the_wedge():
    """Reversed time: a wedge mixer sees every pair the other way round, the symmetric one sees no difference."""
    x, frames = torch.randn(1, 30, 16, dtype=torch.float64), frames_of(30, width=16)
    for kind, sign in (("wedge", -1), ("symmetric", 1)):
        mixer = PairMixer(16, kind, rank=8).double()
        torch.nn.init.zeros_(mixer.project.bias)
        there, back = mixer.mixed(x, frames), mixer.mixed(x.flip(1), frames).flip(1)
        torch.testing.assert_close(back, sign * there)


def test_signed_tables_follow_the_seed():
    tables = [
        make_mixer("pair", 16, kind="signed", seed=seed, block=block).product
        for seed, block in ((0, 0), (0, 3), (1, 0))
    ]
    assert tables[0] == tables[1] != tables[2]


def test_autocast_keeps_the_pair_features_in_fp32():
    mixer, frames = PairMixer(32, rank=8), frames_of(20)
    x = torch.randn(1, 20, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mixer.mixed(x, frames).dtype == torch.float32
        assert mixer(x, frames).isfinite().all()


def test_frames():
    frames = frames_of(3, 1, width=4)
    assert frames.mask.tolist() == [[True, True, True], [True, False, False]]
    assert frames.positions.shape == (1, 5, 4) and frames.positions[0, 2].tolist() == [0, 1, 0, 1]
    assert frames.positions[0, 0, 0] == torch.tensor(2.0).sin()  # the first row is query two frames after key
    assert Frames.of(torch.tensor([2]), 4).positions is None


@pytest.mark.parametrize(
    ("lengths", "named"),
    [
        (torch.tensor([3, 5]), "3 to 5 of a batch padded to 4"),
        (torch.tensor([-1, 4]), "-1 to 4"),
        (torch.tensor([2.5]), "float32"),
        (torch.tensor([float("nan")]), "float32"),
        (torch.tensor([True]), "bool"),
        (torch.tensor([[3, 4]]), "shape"),
        (torch.tensor(3), "shape"),
    ],
)
def test_lengths_that_fit_no_batch_are_refused(lengths, named):
    with pytest.raises(ValueError, match=named):
        Frames.of(lengths, 4)


def test_lengths_elsewhere_than_on_a_cpu_are_not_read():
    """Reading them would wait for the device at every step; a read of a meta tensor raises."""
    assert Frames.of(torch.empty(2, dtype=torch.int32, device="meta"), 4).mask.shape == (2, 4)


@pytest.mark.parametrize("mixer", [name for name in MIXERS if name != "none"])
@pytest.mark.parametrize("frames", [(4,), (4, 4, 4), (3, 3)], ids=["one", "three", "shorter"])
def test_frames_of_another_batch_are_refused(mixer, frames):
    with pytest.raises(ValueError, match="do not fit an input of shape"):
        make_mixer(mixer, 32)(torch.randn(2, 4, 32), frames_of(*frames))


@pytest.mark.parametrize("width", [0, -1, 2.5])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(UserError, match="width"):
        PairMixer(width)


@pytest.mark.parametrize("form", ["anchored", "paper"])
@pytest.mark.parametrize(("batch", "time"), [(0, 5), (2, 0)])
def test_nothing_in_nothing_out_with_gradients(form, batch, time):
    mixer = PairMixer(16, "geometric", rank=8, form=form)
    x = torch.randn(batch, time, 16, requires_grad=True)
    y = mixer(x, Frames.of(torch.full((batch,), time), time))
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape
    assert all((p.grad == 0).all() for p in mixer.parameters())
