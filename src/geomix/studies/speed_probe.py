"""The speed probe (e00): what a mixer costs, in one block, one Conformer training step and a whole encoder at work.

A probe is cut into pieces, each measured in a process of its own (so that its peak memory is its own) and written as JSON;
`build_report` makes the table, the plots and the run record of all pieces that are there. CPU, CUDA and MPS; on CUDA under
bf16 autocast, as trainings run there, and with the steps replayed as CUDA graphs, so that launches are not what is measured.

Beside each time stand its matrix products in FLOP, the bytes that any implementation of that form moves, and the fraction of
the floor: the larger of FLOP / measured matrix rate and bytes / measured copy rate, divided by the time.
"""

from __future__ import annotations

import csv
import datetime
import gc
import io
import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_json, write_json, write_text
from geomix.report.text import markdown_table

LENGTHS = (128, 512, 4096)
TOKENS = 16_384
WIDTH, RANK, FF_DIM, HEADS = 256, 32, 1024, 4
OFFSETS = (1, 2, 4, 8, 12, 16)
ARMS: dict[str, dict[str, Any]] = {
    "attention": {"mixer": {"mixer": "attention", "heads": HEADS}},
    "grassmann": {"mixer": {"mixer": "pair", "kind": "wedge", "rank": RANK}},
    "symmetric": {"mixer": {"mixer": "pair", "kind": "symmetric", "rank": RANK}},
    "no_mixer": {"mixer": {"mixer": "none"}, "ff_dim": 1344},
}
UTTERANCES, SECONDS, UNITS, VOCABULARY = 16, 12.7, 40, 5000
ENCODER_SECONDS = (12.7, 60.0, 300.0)
# the goals of the paper's form against the anchored one at 128 tokens
GOALS = {"cpu": 2.8, "cuda": 3.5}

PIECES = (
    *(f"block-{length}" for length in LENGTHS),
    *(f"step-{arm}" for arm in ARMS),
    *(f"encoder-{arm}-{seconds:g}" for arm in ARMS for seconds in ENCODER_SECONDS),
    "ctc",
    "language-naive",
    "language-chunked",
)
COLUMNS = (
    "part", "what", "form", "length", "seconds", "spread", "gflop", "gbyte", "floor_s", "of_floor", "real_time_factor",
    "peak_gb", "device", "threads",
)  # fmt: skip


def measure_piece(piece: str, out: str | Path, *, threads: int = 1, device: str = "auto", budget: float = 15.0) -> None:
    """Measure one of `PIECES` and write its rows, with where they come from, to the JSON file `out`.

    `budget` is the measuring time in seconds of one row; at least two repeats are taken after the warm-up.
    """
    import torch

    from geomix.training import devices
    from geomix.training.record import code_version, package_versions

    if piece not in PIECES:
        raise UserError(f"piece {piece!r} of the speed probe is not known: choose one of {', '.join(PIECES)}")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    place = devices.choose_device(device)
    kind, _, rest = piece.partition("-")
    measure = {"block": _block, "step": _step, "encoder": _encoder, "ctc": _ctc, "language": _language}[kind]
    rows = measure(*([rest] if rest else []), _Clock(place, budget))
    rates = machine_rates(place)
    for row in rows:
        floors = [row[key] / rates[rate] for key, rate in (("flop", "flops"), ("bytes", "bytes")) if row.get(key)]
        if floors:
            row |= {"floor_s": max(floors), "of_floor": max(floors) / row["seconds"]}
    about = {
        **code_version(),
        "device": devices.device_name(place),
        "device_type": place.type,
        "cpu": devices.cpu_name(),
        "threads": threads,
        "packages": package_versions(),
        "rates": rates,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(out, {"piece": piece, "rows": rows, "record": about})


@lru_cache(maxsize=1)
def machine_rates(device) -> dict[str, Any]:
    """Measured rates: flops (matrix products, FLOP/s, what `training.devices` measures or the data sheet states) and bytes/s of a copy."""
    import torch

    from geomix.training import devices

    rate = devices.device_flops(device)
    a = torch.ones(1 << 26, device=device)  # 256 MB: beyond any cache but a server's L3
    b = torch.empty_like(a)
    clock = _Clock(device, 1.0)
    seconds, _ = clock(lambda: b.copy_(a))
    return {"flops": rate["value"], "flops_source": rate["source"], "bytes": 2 * 4 * a.numel() / seconds}


class _Clock:
    """Median seconds of a call, and the spread (max - min) / median, after a warm-up; a CUDA graph of it on CUDA."""

    def __init__(self, device, budget: float) -> None:
        self.device, self.budget = device, budget

    def __call__(self, call: Callable[[], Any]) -> tuple[float, float]:
        from geomix.training.devices import synchronise

        if self.device.type == "cuda":
            call = _graph(call)
        call()
        synchronise(self.device)
        times: list[float] = []
        while len(times) < 2 or (sum(times) < self.budget and len(times) < 50):
            begun = time.perf_counter()
            call()
            synchronise(self.device)
            times.append(time.perf_counter() - begun)
        return statistics.median(times), (max(times) - min(times)) / statistics.median(times)


def _autocast(device):
    """bf16 on CUDA, nothing elsewhere; without the cache of casts, which a graph must not hold on to."""
    import torch

    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)


def _graph(call: Callable[[], Any]) -> Callable[[], None]:
    """`call` captured as a CUDA graph, after three runs on a side stream as torch asks for."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


# -- one block --------------------------------------------------------------------------------------------------------


def block_work(form: str, length: int, size: int = 4) -> dict[str, dict[str, float]]:
    """FLOP and bytes of a training step at 16,384 tokens: {"block": {"flop", "bytes"}, "mixer": {...}}.

    FLOP: six a weight of each matrix product, causal attention's scores counted as half. Bytes: each product reads its inputs
    and writes its output once, element-wise work is fused into its neighbours, numbers of `size` bytes; backward moves twice
    what forward does. Weights are not counted (0.8 M numbers against 16,384 tokens).
    """
    D, r, K, F = WIDTH, RANK, RANK * (RANK - 1) // 2, FF_DIM
    ff = {"weights": 2 * D * F, "numbers": (D + F) + 2 * F + (F + D) + 3 * D}
    if form == "attention":
        mixer = {"weights": 4 * D * D + length * D, "numbers": (D + 3 * D) + (3 * D + D) + 2 * D}
    elif form == "paper":  # a pair vector is written, divided and projected for each offset
        n = len(OFFSETS)
        mixer = {"weights": D * r + n * K * D + 2 * D * D, "numbers": (D + r) + n * (2 * r + 3 * K + 2 * D) + 3 * D}
    elif form == "anchored":  # one pair vector, held in cache
        mixer = {
            "weights": D * r + K * D + 2 * D * D,
            "numbers": (D + r) + (len(OFFSETS) + 1) * r + (2 * r + D) + 3 * D,
        }
    else:  # fused: u and z in, the result out
        mixer = {"weights": D * r + K * D + 2 * D * D, "numbers": (D + r) + 3 * r + 2 * D}
    norm = {"weights": 0, "numbers": 3 * D}
    total = lambda key, *parts: sum(part[key] for part in parts)
    return {
        what: {
            "flop": 6.0 * TOKENS * total("weights", *parts),
            "bytes": 3.0 * size * TOKENS * total("numbers", *parts),
        }
        for what, parts in (("mixer", [mixer]), ("block", [mixer, norm, ff]))
    }


def _block(length: str, clock: _Clock) -> list[dict[str, Any]]:
    """Forward and backward of the causal block and of its mixer alone, in every form that runs here."""
    import torch

    forms = ["attention", "paper", "anchored", *(["fused"] if clock.device.type == "cuda" else [])]
    steps = int(length)
    x = torch.randn(TOKENS // steps, steps, WIDTH, device=clock.device, requires_grad=True)
    upstream = torch.randn_like(x)
    rows = []
    for form in forms:
        block, frames = block_of_form(form, x)
        for what, module in (("mixer", block.mixer), ("block", block)):
            leaves = [x, *module.parameters()]

            def call(module=module, frames=frames, leaves=leaves):
                with _autocast(clock.device):
                    y = module(x, frames)
                torch.autograd.grad(y, leaves, upstream.to(y.dtype))

            seconds, spread = clock(call)
            rows.append(
                {"part": "block", "what": what, "form": form, "length": steps, "seconds": seconds, "spread": spread}
                | block_work(form, steps, 2 if clock.device.type == "cuda" else 4)[what]
            )
            gc.collect()
    return rows


def block_of_form(form: str, x):
    """The language model's block (width 256, causal) whose mixer is attention or the pair mixer in a form; and its Frames."""
    import torch
    from torch import nn

    from geomix.kernels.pair_mixer import pair_mixer
    from geomix.mixers import Frames
    from geomix.models.transformer_lm import Block, LanguageModelConfig

    class Formed(nn.Module):
        """A PairMixer computed in a given form: `paper` is kernels/pair_features/naive.py, the definition."""

        def __init__(self, mixer, form):
            super().__init__()
            self.mixer, self.form = mixer, form

        def forward(self, u, frames):
            m = self.mixer
            backend, form = ("fused", "anchored") if self.form == "fused" else ("naive", self.form)
            weights = (m.project.weight, m.project.bias, m.gate.weight, m.gate.bias)
            return pair_mixer(
                m.product,
                u,
                m.reduce(u),
                *weights,
                frames.mask,
                m.offsets,
                two_sided=False,
                blend=True,
                form=form,
                backend=backend,
            )

    pair = {"mixer": "pair", "kind": "wedge", "rank": RANK, "offsets": list(OFFSETS)}
    mixer = ARMS["attention"]["mixer"] if form == "attention" else pair
    config = LanguageModelConfig(vocab=2, blocks=1, width=WIDTH, ff_dim=FF_DIM, mixer=mixer)
    torch.manual_seed(0)
    block = Block(config, 0)
    if form != "attention":
        block.mixer = Formed(block.mixer, form)
    batch, length, _ = x.shape
    frames = Frames.of(torch.full((batch,), length), length, device=x.device)
    return block.to(x.device, x.dtype).train(), frames


# -- the Conformer ----------------------------------------------------------------------------------------------------


def _conformer(arm: str, device):
    import torch

    from geomix.models.conformer import ConformerConfig, ConformerCTC

    torch.manual_seed(0)
    config = ConformerConfig.from_dict({"vocab": VOCABULARY, **ARMS[arm]})
    model = ConformerCTC(config).to(device)
    model.set_normalisation(torch.full((config.features,), -5.0), torch.full((config.features,), 4.0))
    return config, model


def _step(arm: str, clock: _Clock) -> list[dict[str, Any]]:
    """Forward and backward of the 15-block Conformer-CTC on 16 utterances of 12.7 s."""
    import torch

    from geomix.models.flops import train_flops_per_audio_second
    from geomix.training import devices

    devices.keep_freed_memory()
    config, model = _conformer(arm, clock.device)
    model.train()
    frames = round(100 * SECONDS) + 1
    features = torch.randn(UTTERANCES, frames, config.features, device=clock.device) * 4 - 5
    lengths = torch.full((UTTERANCES,), frames)
    tokens = torch.randint(1, VOCABULARY - 1, (UTTERANCES, UNITS), device=clock.device)
    token_lengths = torch.full((UTTERANCES,), UNITS, device=clock.device)
    parameters = list(model.parameters())

    def call():
        with _autocast(clock.device):
            loss = model(features, lengths, tokens, token_lengths)["loss"]
        torch.autograd.grad(loss, parameters, allow_unused=True)  # no_mixer keeps the norm of the mixer that it lacks

    seconds, spread = clock(call)
    audio = UTTERANCES * SECONDS
    return [
        {
            "part": "step",
            "what": "training step, 16 x 12.7 s",
            "form": arm,
            "length": frames,
            "seconds": seconds,
            "spread": spread,
            "flop": audio * train_flops_per_audio_second(config, SECONDS),
            "real_time_factor": seconds / audio,
            "peak_bytes": devices.peak_memory(clock.device),
        }
    ]


def _encoder(rest: str, clock: _Clock) -> list[dict[str, Any]]:
    """Inference of the whole encoder with its CTC head on one recording: real-time factor and peak memory."""
    import torch

    from geomix.models.flops import macs_per_frame
    from geomix.training import devices

    arm, seconds_of_audio = rest.rsplit("-", 1)
    audio = float(seconds_of_audio)
    config, model = _conformer(arm, clock.device)
    model.eval()
    frames = round(100 * audio) + 1
    features = torch.randn(1, frames, config.features, device=clock.device) * 4 - 5
    lengths = torch.tensor([frames])
    encoded = int(model.subsampled_lengths(lengths))
    before = devices.peak_memory(clock.device)
    with torch.inference_mode(), _autocast(clock.device):
        # one warm-up is enough, and a graph would hold its memory: the plain call is timed on every device
        model.log_probs(features, lengths)
        devices.synchronise(clock.device)
        times = []
        while len(times) < 2 or (sum(times) < clock.budget and len(times) < 10):
            begun = time.perf_counter()
            model.log_probs(features, lengths)
            devices.synchronise(clock.device)
            times.append(time.perf_counter() - begun)
    seconds = statistics.median(times)
    return [
        {
            "part": "encoder",
            "what": f"inference, {audio:g} s of audio",
            "form": arm,
            "length": encoded,
            "seconds": seconds,
            "spread": (max(times) - min(times)) / seconds,
            "flop": 2.0 * encoded * macs_per_frame(config, encoded),
            "real_time_factor": seconds / audio,
            "peak_bytes": devices.peak_memory(clock.device),
            "before_bytes": before,
        }
    ]


def _ctc(clock: _Clock) -> list[dict[str, Any]]:
    """CTC loss and gradient of 16 utterances here in fp32 against the CPU's in float64, and its time."""
    import torch
    from torch.nn import functional as F

    from geomix.models.ctc import ctc_loss

    frames = 317
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(UTTERANCES, frames, VOCABULARY, generator=generator)
    tokens = torch.randint(1, VOCABULARY - 1, (UTTERANCES, UNITS), generator=generator)
    lengths, token_lengths = torch.full((UTTERANCES,), frames), torch.full((UTTERANCES,), UNITS)

    reference = logits.double().requires_grad_()
    losses = F.ctc_loss(
        reference.log_softmax(-1).transpose(0, 1), tokens, lengths, token_lengths, reduction="none", zero_infinity=True
    )
    want = losses.sum() / UTTERANCES
    (want_gradient,) = torch.autograd.grad(want, reference)

    here = logits.to(clock.device).requires_grad_()
    where = [x.to(clock.device) for x in (lengths, tokens, token_lengths)]

    def call():
        loss = ctc_loss(here.log_softmax(-1), *where)
        return loss, torch.autograd.grad(loss, here)[0]

    loss, gradient = call()
    seconds, spread = clock(call)
    return [
        {
            "part": "ctc",
            "what": "CTC loss and gradient, 16 x 317 frames, 5,000 units",
            "form": "native",
            "length": frames,
            "seconds": seconds,
            "spread": spread,
            "bytes": 4.0 * 5 * logits.numel(),  # logits in, log-probabilities out and in, gradient out; logits again
            "loss_difference": abs(loss.item() - want.item()),
            "loss": want.item(),
            "gradient_difference": float((gradient.cpu().double() - want_gradient).abs().max()),
        }
    ]


def _language(form: str, clock: _Clock) -> list[dict[str, Any]]:
    """A full-size language-model step (32 blocks of 128, 30,522 pieces) with the logits at once or in chunks."""
    import torch

    from geomix.kernels.linear_cross_entropy import linear_cross_entropy, naive
    from geomix.models.transformer_lm import LanguageModelConfig, TransformerLM, train_flops_per_token
    from geomix.training import devices

    torch.set_flush_denormal(True)  # as the trainer does
    config = LanguageModelConfig(vocab=30_522)
    model = TransformerLM(config).to(clock.device).train()
    tokens = torch.randint(config.vocab, (32, config.positions + 1), device=clock.device)
    loss_of = {"naive": naive.linear_cross_entropy, "chunked": linear_cross_entropy}[form]
    parameters = list(model.parameters())

    def call():
        with _autocast(clock.device):
            hidden = model.hidden(tokens[:, :-1]).flatten(0, 1)
            loss = loss_of(hidden, model.tokens.weight, tokens[:, 1:].flatten())
        torch.autograd.grad(loss, parameters)

    seconds, spread = clock(call)
    count = 32 * config.positions
    return [
        {
            "part": "language",
            "what": "Transformer 12.6 M training step, 4,096 tokens",
            "form": form,
            "length": config.positions,
            "seconds": seconds,
            "spread": spread,
            "flop": count * train_flops_per_token(config),
            "tokens_per_second": count / seconds,
            "hours_of_30_epochs": 30 * 2.3e6 / count * seconds / 3600,
            "peak_bytes": devices.peak_memory(clock.device),
        }
    ]


# -- the report -------------------------------------------------------------------------------------------------------


def build_report(pieces: Sequence[str | Path], folder: str | Path) -> dict[str, Any]:
    """Write e00.csv, e00.md, record.json and the plots of measured pieces into `folder`; return the record.

    Raises UserError when the pieces come from different machines or thread counts: their times are not comparable.
    """
    folder = Path(folder)
    found = [read_json(path) for path in pieces]
    machines = {(p["record"]["device"], p["record"]["threads"]) for p in found}
    if len(machines) != 1:
        raise UserError(
            f"{folder}: pieces of {' and '.join(f'{d} with {t} threads' for d, t in sorted(machines))}: "
            "remove those of one and measure them again"
        )
    device, threads = machines.pop()
    rows = [row for piece in found for row in piece["rows"]]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(_cells(row) | {"device": device, "threads": threads})
    write_text(folder / "e00.csv", text.getvalue())
    record = {
        "ratios": paper_over_anchored(rows),
        "goal": GOALS.get(found[0]["record"]["device_type"]),
        "ctc": [
            {k: row[k] for k in ("loss", "loss_difference", "gradient_difference")}
            for row in rows
            if row["part"] == "ctc"
        ],
        "pieces": {piece["piece"]: piece["record"] for piece in found},
    }
    write_json(folder / "record.json", record)
    write_text(folder / "e00.md", _markdown(rows, record, found[0]["record"]))
    _draw(rows, folder)
    return record


def paper_over_anchored(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """{"mixer": {length: ratio}, "block": {...}}: time of the paper's form over the anchored one's, of one run each."""
    times = {(r["what"], r["form"], r["length"]): r["seconds"] for r in rows if r["part"] == "block"}
    return {
        what: {
            str(length): round(times[what, "paper", length] / times[what, "anchored", length], 2)
            for length in LENGTHS
            if (what, "paper", length) in times
        }
        for what in ("mixer", "block")
    }


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    number = lambda value, scale=1.0: "" if value is None else f"{value / scale:.4g}"
    return {
        **{key: row[key] for key in ("part", "what", "form", "length")},
        "seconds": number(row["seconds"]),
        "spread": number(row["spread"]),
        "gflop": number(row.get("flop"), 1e9),
        "gbyte": number(row.get("bytes"), 1e9),
        "floor_s": number(row.get("floor_s")),
        "of_floor": number(row.get("of_floor")),
        "real_time_factor": number(row.get("real_time_factor")),
        "peak_gb": number(row.get("peak_bytes"), 1e9),
    }


def _markdown(rows: Sequence[dict[str, Any]], record: dict[str, Any], machine: dict[str, Any]) -> str:
    table = lambda head, lines: "\n".join(markdown_table(head, lines))
    rates = machine["rates"]
    parts = [
        "# Speed probe (e00)",
        f"{machine['device']}, {machine['threads']} thread{'s' if machine['threads'] > 1 else ''}, torch {machine['packages']['torch']}, "
        f"{'bf16 autocast' if machine['device_type'] == 'cuda' else 'fp32'}, commit "
        f"{(machine['commit'] or 'unknown')[:10]}{' (dirty)' if machine['dirty'] else ''}. Rates: {rates['flops'] / 1e9:.0f} GFLOP/s of "
        f"matrix products ({rates['flops_source']}), {rates['bytes'] / 1e9:.1f} GB/s of a copy. Medians; forward and backward. *Of floor*: the least time that these rates allow (FLOPs over the one, bytes over the other, the "
        "larger) over the measured one.",
        "## One block, 16,384 tokens",
        table(
            ["what", "form", *(f"L {length}, ms (of floor)" for length in LENGTHS)],
            [[what, form, *_by_length(rows, what, form)] for what in ("mixer", "block") for form in _forms(rows)],
        ),
        "Paper's form over anchored form: "
        + "; ".join(f"{w} {', '.join(f'L {n}: {v:g}' for n, v in r.items())}" for w, r in record["ratios"].items())
        + (f". Goal at L 128: at least {record['goal']}." if record["goal"] else "."),
        "![One block against length](block.svg)",
    ]
    step = [r for r in rows if r["part"] == "step"]
    if step:
        parts += [
            "## Conformer-CTC training step, 16 utterances of 12.7 s",
            table(
                ["arm", "seconds", "audio-s/s", "GFLOP", "of floor", "peak GB"],
                [
                    [r["form"], f"{r['seconds']:.2f}", f"{1 / r['real_time_factor']:.1f}", f"{r['flop'] / 1e9:,.0f}",
                     f"{r['of_floor']:.2f}", f"{r['peak_bytes'] / 1e9:.2f}"] for r in step
                ],
            ),
        ]  # fmt: skip
    encoder = [r for r in rows if r["part"] == "encoder"]
    if encoder:
        cell = lambda r: f"{r['real_time_factor']:.4f}, {r['peak_bytes'] / 1e9:.2f} GB"
        lengths = sorted({r["length"] for r in encoder})
        by = {(r["form"], r["length"]): cell(r) for r in encoder}
        parts += [
            "## Encoder at work: real-time factor and peak memory of the process",
            table(
                ["arm", *(f"{n:,} frames" for n in lengths)],
                [[arm, *(by.get((arm, n), "") for n in lengths)] for arm in dict.fromkeys(r["form"] for r in encoder)],
            ),
            "![Encoder against length](encoder.svg)",
        ]
    for row in rows:
        if row["part"] == "ctc":
            parts += [
                "## CTC loss",
                f"{row['what']}: {1e3 * row['seconds']:.1f} ms; against the CPU in float64 the loss ({row['loss']:.3f}) differs by "
                f"{row['loss_difference']:.1e}, the gradient by {row['gradient_difference']:.1e} at most.",
            ]
    language = [r for r in rows if r["part"] == "language"]
    if language:
        parts += [
            "## Language model at full size: the output layer",
            table(
                ["logits", "seconds a step", "tokens/s", "30 epochs, h", "of floor", "peak GB"],
                [
                    [r["form"], f"{r['seconds']:.2f}", f"{r['tokens_per_second']:,.0f}", f"{r['hours_of_30_epochs']:.1f}",
                     f"{r['of_floor']:.2f}", f"{r['peak_bytes'] / 1e9:.2f}"] for r in language
                ],
            ),
        ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _forms(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["form"] for r in rows if r["part"] == "block"))


def _by_length(rows: Sequence[dict[str, Any]], what: str, form: str) -> list[str]:
    by = {r["length"]: r for r in rows if (r["part"], r["what"], r["form"]) == ("block", what, form)}
    return [f"{1e3 * by[n]['seconds']:.0f} ({by[n]['of_floor']:.2f})" if n in by else "" for n in LENGTHS]


def _draw(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    from geomix.report.figures import COLOURS, MARKERS, STYLE, save_figure

    def curves(ax, chosen, value):
        for i, form in enumerate(dict.fromkeys(r["form"] for r in chosen)):
            points = sorted((r["length"], value(r)) for r in chosen if r["form"] == form)
            ax.plot(*zip(*points, strict=True), color=COLOURS[i], marker=MARKERS[i], ms=5, lw=1.5, label=form)
        ticks = sorted({r["length"] for r in chosen})
        ax.set_xscale("log")
        ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
        ax.minorticks_off()
        ax.set_ylim(bottom=0)

    panels = {
        "block": [
            (f"{what}, 16,384 tokens", "tokens in a sequence", "forward and backward, ms",
             [r for r in rows if r["part"] == "block" and r["what"] == what], lambda r: 1e3 * r["seconds"])
            for what in ("mixer", "block")
        ],
        "encoder": [
            (title, "encoder frames (25 a second)", label, [r for r in rows if r["part"] == "encoder"], value)
            for title, label, value in (
                ("Real-time factor", "seconds of work a second of audio", lambda r: r["real_time_factor"]),
                ("Peak memory", "GB of the process", lambda r: r["peak_bytes"] / 1e9),
            )
        ],
    }  # fmt: skip
    with matplotlib.rc_context(STYLE):
        for name, parts in panels.items():
            if not all(chosen for *_, chosen, _ in parts):
                continue
            figure = Figure(figsize=(9, 3.6), layout="constrained")
            axes = figure.subplots(1, 2)
            for ax, (title, xlabel, ylabel, chosen, value) in zip(axes, parts, strict=True):
                curves(ax, chosen, value)
                ax.set_title(title)
                ax.set_xlabel(xlabel)
                ax.set_ylabel(ylabel)
            axes[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
            save_figure(figure, folder, name)
