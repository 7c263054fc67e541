"""The page of both tracks' step: no speed-up is told of steps that differ."""

from geomix.benchmarks.espnet import describe


def found(ratio):
    track = {"seconds": [4.0, 5.0], "cpu_seconds": [4.0, 4.0], "audio_s_per_s": 10.0, "share_of_rate": 0.5}
    track["profile"] = [["aten::mm", 24.2, 275]]
    return {
        "tracks": {"own": track, "espnet": track}, "ratio": ratio, "cpu_ratio": ratio, "difference": 2e-5, "parameters": 1000,
        "device": "a CPU", "device_flops": {"value": 1e11, "source": "measured"}, "threads": 1, "load": 0.5,
        "packages": {"torch": "2.14.1"}, "espnet": "202611",
    }  # fmt: skip


def test_a_speed_up_is_told_only_where_loss_and_gradients_agreed():
    page = describe(found(1.25), "attention", 4, 12.0)
    assert "The own track is 1.25 times as fast" in page and "differed by 2e-05" in page
    assert (
        page.index("| espnet | 4.50 (4.00 to 5.00) |")
        < page.index("| own |")
        < page.index("| `aten::mm` | 24.2 | 275 |")
    )
    page = describe(found(None), "attention", 4, 12.0)
    assert "times as fast" not in page and "no speed is compared" in page
