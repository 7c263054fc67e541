"""SpecAugment against torch's interpolation and ESPnet's ranges."""

import pytest
import torch
from torch.nn.functional import interpolate

from geomix.speech.augmentation import SpecAugment, draw_masks, draw_warp, warp_time
from geomix.training.seeding import generator

BANDS = 80


def test_warp_is_torchs_bicubic_on_each_side():
    """ESPnet's time_warp: interpolate (bicubic, align_corners False) of [:centre] to warped frames and of [centre:] to
    the rest.
    """
    lengths = torch.tensor([97, 64, 11, 97, 40])
    centre, warped = torch.tensor([31, 20, 5, 90, 12]), torch.tensor([36, 16, 6, 88, 12])
    features = torch.randn(5, 97, BANDS, generator=generator("warp")) * 4 - 5
    result = warp_time(features, lengths, centre, warped)
    for row, (t, c, w) in enumerate(zip(lengths.tolist(), centre.tolist(), warped.tolist(), strict=True)):
        x = features[row, :t][None, None]
        left = interpolate(x[:, :, :c], (w, BANDS), mode="bicubic", align_corners=False)
        right = interpolate(x[:, :, c:], (t - w, BANDS), mode="bicubic", align_corners=False)
        torch.testing.assert_close(result[row, :t], torch.cat([left, right], 2)[0, 0], rtol=0, atol=2e-4)
        # padding neither enters nor moves (complaint: lhotse#271, fairseq#3141)
        assert torch.equal(result[row, t:], features[row, t:])
    assert torch.equal(result[4], features[4])  # centre = warped: nothing moves


def test_warp_never_reads_padding():
    features = torch.randn(2, 60, BANDS, generator=generator("pad"))
    lengths, centre, warped = torch.tensor([60, 35]), torch.tensor([20, 30]), torch.tensor([24, 26])
    clean = warp_time(features, lengths, centre, warped)
    features[1, 35:] = float("nan")
    assert torch.equal(warp_time(features, lengths, centre, warped)[1, :35], clean[1, :35])


def test_warp_draws_are_espnets_and_go_both_ways():
    lengths = torch.arange(40_000) % 60 + 12
    centre, warped = draw_warp(lengths, 5, generator(0))
    assert ((centre >= 5) & (centre < lengths - 5)).all()
    shift = warped - centre
    assert (shift.min(), shift.max()) == (-4, 5)  # randint(centre - 5, centre + 5) + 1
    assert abs(shift.double().mean() - 0.5) < 0.06  # four standard errors
    assert ((warped > 0) & (warped < lengths)).all()


def test_short_utterances_are_not_warped():
    """Complaint: zcaceres/spec_augment#12 fails on short inputs. No-op when t <= 2 x window."""
    lengths = torch.tensor([1, 2, 7, 10, 11, 300])
    centre, warped = draw_warp(lengths, 5, generator(1))
    assert torch.equal(centre[:4], warped[:4])
    features = torch.randn(6, 300, BANDS, generator=generator("short"))
    result = warp_time(features, lengths, centre, warped)
    assert torch.equal(result[:4], features[:4])
    assert torch.isfinite(result).all()


def test_one_warp_serves_a_batch_of_equal_lengths():
    centre, warped = draw_warp(torch.tensor([80] * 20), 5, generator(2))
    assert len(set(centre.tolist())) == len(set(warped.tolist())) == 1
    centre, _ = draw_warp(torch.tensor([80] * 20 + [81]), 5, generator(2))
    assert len(set(centre.tolist())) > 5


def test_masks_have_espnets_widths_and_fill():
    """2 frequency masks of 0 to 26 bands; 5 time masks of 0 to floor(0.05 T) - 1 frames, T the padded length; filled
    with 0.0.
    """
    augment = SpecAugment(time_warp=0)
    time = 219  # floor(0.05 x 219) = 10
    widest_band, widest_time, means = 0, 0, []
    for draw in range(300):
        result = augment(torch.full((4, time, BANDS), -7.0), torch.tensor([time, 100, 50, 20]), generator(draw))
        assert set(result.unique().tolist()) <= {-7.0, 0.0}
        bands, frames = (result == 0).all(1), (result == 0).all(2)
        widest_band, widest_time = max(widest_band, int(bands.sum(1).max())), max(widest_time, int(frames.sum(1).max()))
        means.append(bands.double().sum(1).mean())
    assert 40 < widest_band <= 2 * 26
    assert 30 < widest_time <= 5 * 9
    # two masks of mean 13, overlapping now and then
    assert 20 < torch.stack(means).mean() < 26


def test_mask_widths_and_positions_one_by_one():
    widths, starts = set(), set()
    for draw in range(2000):
        mask = draw_masks(1, BANDS, 27, 1, generator("mask", draw))[0]
        positions = mask.nonzero()[:, 0]
        widths.add(len(positions))
        if len(positions):
            starts.add(int(positions[0]))
            assert len(positions) == positions[-1] - positions[0] + 1
            assert positions[-1] < BANDS - 1  # randint(0, 80 - width) ends before it
    assert widths == set(range(27))
    assert min(starts) == 0 and max(starts) >= 70


def test_short_batches_have_no_time_mask():
    """floor(0.05 x 19) = 0: no time mask is drawn; the padded length counts, not an utterance's own."""
    result = SpecAugment(time_warp=0, frequency_masks=0)(
        torch.ones(3, 19, BANDS), torch.tensor([19, 8, 3]), generator(0)
    )
    assert (result == 1).all()


def test_draws_depend_on_the_generator_alone_and_the_input_stays():
    augment, lengths = SpecAugment(), torch.tensor([150, 90])
    features = torch.randn(2, 150, BANDS, generator=generator("x"))
    before = features.clone()
    first = augment(features, lengths, generator(1, "augment", 2, 3))
    torch.rand(7)  # the global generator is not involved
    assert torch.equal(first, augment(features, lengths, generator(1, "augment", 2, 3)))
    assert not torch.equal(first, augment(features, lengths, generator(1, "augment", 2, 4)))
    assert torch.equal(features, before)


@pytest.mark.parametrize("lengths", [[1], [2, 1], [11, 10, 1]])
def test_tiny_batches(lengths):
    result = SpecAugment()(torch.randn(len(lengths), max(lengths), BANDS), torch.tensor(lengths), generator(0))
    assert torch.isfinite(result).all()
