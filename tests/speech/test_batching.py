"""Batches as ESPnet's numel sampler makes them, and the utterances that CTC cannot align."""

import random

import numpy as np
import pytest
import torch

from geomix.errors import UserError
from geomix.speech.batching import (
    Example,
    FrameSource,
    ctc_frames_needed,
    numel_batches,
    pad_tokens,
    padding_share,
    shuffled,
    split_alignable,
)


def example(name, samples, tokens):
    return Example(name, samples, samples // 160 + 1, tuple(tokens))


def corpus(count, seed=0, vocabulary=5000):
    draw = random.Random(seed)
    lengths = [draw.randint(16_000, 16_000 * 17) for _ in range(count)]
    return [
        example(f"u{i:05d}", n, [draw.randint(2, vocabulary - 2) for _ in range(n // 4800)])
        for i, n in enumerate(lengths)
    ]


def test_bins_count_samples_and_tokens_of_the_longest_audio_times_the_vocabulary():
    examples = [example(f"u{n}", 1000 * n, [2] * (6 - n)) for n in (1, 2, 3, 4, 5)]
    # with vocabulary 10: one 1000 + 50; two 2 x (2000 + 40) = 4080; three 3 x (3000 + 30) = 9090 goes over 9000: closed
    batches = numel_batches(examples, vocabulary=10, batch_bins=9000)
    assert [[e.id for e in batch] for batch in batches] == [["u3", "u2", "u1"], ["u5", "u4"]]
    # the longest text, 3 x (3000 + 50), would be over; ESPnet's sampler looks at the utterance that it adds
    assert len(numel_batches(examples, vocabulary=10, batch_bins=9100)[0]) == 4


def test_batches_are_those_of_espnets_sampler():
    """The rule of num_elements_batch_sampler.py, restated (tests/espnet_track holds the sampler itself against it)."""
    examples, vocabulary, bins = corpus(500), 5000, 2_000_000
    ordered = sorted(examples, key=lambda e: e.samples)
    expected, start = [], 0
    while start < len(ordered):
        size = 1
        while start + size <= len(ordered):
            part = ordered[start : start + size]
            if size * part[-1].samples + size * len(part[-1].tokens) * vocabulary > bins:
                break
            size += 1
        expected.append([e.id for e in ordered[start : start + size]][::-1])
        start += size
    assert [[e.id for e in batch] for batch in numel_batches(examples, vocabulary, bins)] == expected
    assert sum(map(len, expected)) == 500


def test_recipe_size_gives_the_published_480_seconds_a_batch():
    """16 M bins are about 480 s of LibriSpeech audio (ESPnet3's own config says about 475), not 1,000 s."""
    draw = np.random.default_rng(0)
    seconds = np.where(draw.random(8000) < 0.75, draw.normal(14.6, 1, 8000), draw.uniform(1.4, 13, 8000)).clip(1.4, 24)
    # LibriSpeech with 5000 unigram pieces: about 3.4 tokens a second
    examples = [example(f"u{i}", int(16_000 * s), [2] * int(3.4 * s)) for i, s in enumerate(seconds)]
    batches = numel_batches(examples, 5000, 16_000_000)
    audio = sum(e.samples for batch in batches for e in batch) / 16_000 / len(batches)
    assert 430 < audio < 530


def test_whole_batches_are_shuffled_by_seed_and_epoch_alone():
    batches = numel_batches(corpus(200), 100, 3_000_000)
    first = shuffled(batches, seed=3, epoch=1)
    assert first == shuffled(batches, seed=3, epoch=1) != shuffled(batches, seed=3, epoch=2)
    expected = list(range(len(batches)))
    np.random.RandomState(4).shuffle(expected)  # ESPnet: RandomState(epoch + seed)
    assert first == [batches[i] for i in expected]


def test_padding_share():
    assert padding_share([[example("a", 16_000, []), example("b", 16_000, [])]]) == 0
    assert padding_share([[Example("a", 0, 100, ()), Example("b", 0, 50, ())]]) == 0.25
    assert padding_share(numel_batches(corpus(3000), 5000, 16_000_000)) < 0.05


def test_ctc_can_align_what_is_kept_and_not_what_is_dropped():
    """Complaint: icefall#135, #580, espnet#2669. torch's own CTC loss is infinite exactly for the dropped."""
    draw = random.Random(0)
    examples = [
        Example(f"u{i}", 0, draw.randint(7, 60), tuple(draw.choices((2, 3), k=draw.randint(1, 9)))) for i in range(300)
    ]
    subsampled = lambda frames: ((frames - 1) // 2 - 1) // 2
    kept, dropped = split_alignable(examples, subsampled)
    assert len(kept) + len(dropped) == 300 and len(dropped) > 20
    for group, finite in ((kept, True), (dropped, False)):
        for e in group:
            log_probs = torch.full((subsampled(e.frames), 1, 4), 0.25).log()
            loss = torch.nn.functional.ctc_loss(
                log_probs, torch.tensor([e.tokens]), (len(log_probs),), (len(e.tokens),), reduction="sum"
            )
            assert bool(torch.isfinite(loss)) is finite, e
    assert ctc_frames_needed([1, 1, 2, 2]) == 6  # T = 5 is the example of an infinite loss


def test_an_utterance_without_a_frame_or_tokens_is_judged_too():
    nothing, silence = Example("nothing", 100, 1, ()), Example("silence", 1600, 11, ())
    kept, dropped = split_alignable([nothing, silence], lambda frames: max(((frames - 1) // 2 - 1) // 2, 0))
    assert kept == [silence] and dropped == [nothing]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("resident", [False, True])
def test_feature_batches_from_files_and_from_device_memory_are_the_same(dtype, resident):
    draw = np.random.default_rng(0)
    store = {f"u{i}": draw.normal(size=(n, 80)).astype(dtype) for i, n in enumerate((5, 9, 3, 7))}
    source = FrameSource(store, list(store), torch.device("cpu"), resident=resident)
    batch = source.batch(["u2", "u1", "u3"], [3, 9, 7])
    assert batch.shape == (3, 9, 80) and batch.dtype == torch.float32
    for row, name in enumerate(("u2", "u1", "u3")):
        length = len(store[name])
        np.testing.assert_array_equal(batch[row, :length].numpy(), store[name].astype(np.float32))
        assert not batch[row, length:].any()


def test_no_utterance_left_is_a_sentence():
    with pytest.raises(UserError, match="no utterance is left to train on"):
        FrameSource({}, [], torch.device("cpu"))


def test_tokens_are_padded_with_the_blank():
    padded, lengths = pad_tokens([[5, 6, 7], [], [8]])
    assert padded.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert lengths.tolist() == [3, 0, 1]
