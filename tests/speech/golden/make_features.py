"""Make features.npz: log-mel features and normalisation as ESPnet 202611 computes them. Run with ESPnet's own Python.

    python3 -m venv espnet_venv && . espnet_venv/bin/activate
    pip install torch==2.14.1 torchaudio==2.11.1 typeguard einops pyyaml humanfriendly torch-complex librosa omniio \
        sentencepiece editdistance opt-einsum hydra-core omegaconf
    pip install --no-deps --ignore-requires-python espnet==202611
    python tests/speech/golden/make_features.py

The waveforms are made here, stored as 16-bit integers beside the features, and cover a sweep with noise, digital
silence (the floor of the logarithm), full scale, and the shortest utterance that preparation keeps (0.1 s).
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from espnet2.asr.frontend.default import DefaultFrontend
from espnet2.layers.global_mvn import GlobalMVN


def waveforms() -> dict[str, np.ndarray]:
    """16-bit waveforms at 16 kHz by name."""
    random = np.random.default_rng(202611)
    time = np.arange(9001) / 16000
    sweep = np.sin(2 * np.pi * (150 * time + 6000 * time**2)) * np.hanning(9001) + 0.01 * random.standard_normal(9001)
    sweep[3000:4200] = 0
    short = random.standard_normal(1600)
    return {
        "sweep": np.round(sweep / np.abs(sweep).max() * 12000).astype(np.int16),
        "short": np.round(short / np.abs(short).max() * 32767).astype(np.int16),
    }


def main() -> None:
    """Write features.npz beside this file."""
    frontend = DefaultFrontend(fs=16000, n_fft=512, win_length=400, hop_length=160).eval()
    content, features = {}, []
    for name, samples in waveforms().items():
        waveform = torch.from_numpy(samples.astype(np.float32) / 32768)[None]
        with torch.no_grad():
            found, lengths = frontend(waveform, torch.tensor([waveform.shape[1]]))
        assert found.shape[1] == lengths.item()
        features.append(found[0].numpy())
        content |= {f"{name}_samples": samples, f"{name}_features": features[-1]}
    frames = np.concatenate(features)
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "feats_stats.npz"
        np.savez(stats, count=len(frames), sum=frames.sum(0), sum_square=(frames**2).sum(0))
        normalise = GlobalMVN(str(stats))
        normalised, _ = normalise(torch.from_numpy(features[0].copy())[None], torch.tensor([len(features[0])]))
    content |= {"mean": normalise.mean.numpy(), "std": normalise.std.numpy(), "sweep_normalised": normalised[0].numpy()}
    np.savez_compressed(Path(__file__).with_name("features.npz"), **content)


if __name__ == "__main__":
    main()
