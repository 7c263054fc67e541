"""Speed and memory of the full-size model (the 3.3-2b shape, random weights), beside transformers 4.57.1 where it is installed.

Both run the same weights (one copy in memory), the same inputs, dtype and threads, in turns in one process; their outputs are
compared before anything is timed.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from geomix.models.granite.config import EncoderConfig, GraniteConfig, ProjectorConfig, TextConfig
from geomix.models.granite.decoder import GraniteDecoder
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.projector import Projector


def config_3_3_2b(encoder_layers: int = 16, decoder_layers: int = 40) -> GraniteConfig:
    """The published shape, with fewer layers on request."""
    return GraniteConfig(
        EncoderConfig(num_layers=encoder_layers, output_dim=256),
        ProjectorConfig(
            hidden_size=1024, num_hidden_layers=2, num_attention_heads=16, intermediate_size=4096,
            cross_attention_frequency=1, encoder_hidden_size=1024,
        ),
        TextConfig(
            vocab_size=49160, hidden_size=2048, intermediate_size=8192, num_hidden_layers=decoder_layers,
            num_attention_heads=32, num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1e7, embedding_multiplier=12.0,
            attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0, eos_token_id=0, pad_token_id=0,
        ),
        audio_token_id=49159,
        has_lora_adapter=False,
    )  # fmt: skip


def _random(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Fill a module on the meta device with weights that keep activations at about one; returns its state dict."""
    generator, tensors = torch.Generator().manual_seed(0), {}
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            tensors[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
            continue
        noise = torch.empty(tensor.shape).uniform_(-1, 1, generator=generator)
        if tensor.ndim > 1:
            noise.mul_(1.7 / tensor[0].numel() ** 0.5)
        elif name.endswith("running_var") or ("norm" in name.lower() and name.endswith("weight")):
            noise.mul_(0.1).add_(1)
        else:
            noise.mul_(0.1)
        tensors[name] = noise.to(dtype)
    module.load_state_dict(tensors, assign=True)
    module.eval()
    return tensors


def _peer(config: GraniteConfig, tensors: dict[str, dict[str, Tensor]]) -> dict[str, nn.Module] | None:
    """The modules of transformers 4.57.1 around the same tensors, or None where it is not installed."""
    try:
        import transformers
        from transformers.models.granite.modeling_granite import GraniteForCausalLM, GraniteRotaryEmbedding
        from transformers.models.granite_speech import modeling_granite_speech as modeling
    except ImportError:
        return None
    about = transformers.GraniteSpeechConfig(**config.to_json())
    makers = {
        "encoder": lambda: modeling.GraniteSpeechCTCEncoder(about.encoder_config),
        "projector": lambda: modeling.GraniteSpeechEncoderProjector(about),
        "decoder": lambda: GraniteForCausalLM._from_config(about.text_config, attn_implementation="sdpa"),
    }
    peers = {}
    for name, state in tensors.items():
        with torch.device("meta"):
            module = makers[name]()
        module.load_state_dict(state, assign=True, strict=False)
        if name == "encoder":  # what was on the meta device and is in no state dict
            places = torch.arange(config.encoder.context_size)
            module.attention_dists = places[:, None] - places[None, :] + config.encoder.max_pos_emb
        if name == "decoder":
            module.tie_weights()
            module.model.rotary_emb = GraniteRotaryEmbedding(about.text_config)
        peers[name] = module.eval()
    return peers


def _alternate(functions: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median wall time of each function, called in turns for about `seconds` in all, at least three times each."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    begun = time.perf_counter()
    while len(times[next(iter(times))]) < 3 or time.perf_counter() - begun < seconds:
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def _line(what: str, times: dict[str, float], unit: str) -> None:
    text = f"{what:52s} geomix {times['geomix']:8.3f} {unit}"
    if "transformers" in times:
        text += f"   transformers {times['transformers']:8.3f} {unit}   {times['transformers'] / times['geomix']:.2f} times as fast"
    print(text, flush=True)


def _profile(function: Callable[[], object], name: str) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CPU]) as profiled:
        function()
    entries = sorted(profiled.key_averages(), key=lambda entry: -entry.self_cpu_time_total)
    total = sum(entry.self_cpu_time_total for entry in entries)
    print(f"  {name}, {total / 1e3:.0f} ms")
    for entry in entries[:10]:
        share = entry.self_cpu_time_total / total
        print(
            f"    {entry.key:45s} {entry.self_cpu_time_total / 1e3:9.1f} ms {100 * share:5.1f} % {entry.count:6d} calls"
        )


@torch.inference_mode()
def bench(
    *, threads: int, dtypes: Sequence[str], frames: Sequence[int], layers: int = 16, decoder_layers: int = 4,
    seconds: float = 4.0, profile: bool = False,
) -> None:  # fmt: skip
    """Print a line a case: encoder + projector for each number of frames, decoder prefill and tokens for `decoder_layers` layers."""
    torch.set_num_threads(threads)
    config = config_3_3_2b(layers, decoder_layers)
    for name in dtypes:
        _bench_encoder(config, name, frames, seconds, profile)
        _bench_decoder(config, name, seconds)


def _bench_encoder(config: GraniteConfig, name: str, frames: Sequence[int], seconds: float, profile: bool) -> None:
    dtype = getattr(torch, name)
    with torch.device("meta"):
        encoder, projector = GraniteEncoder(config.encoder), Projector(config.projector, config.text.hidden_size)
    peers = _peer(config, {"encoder": _random(encoder, dtype), "projector": _random(projector, dtype)})
    ours = lambda features: projector(encoder(features))
    theirs = lambda features: peers["projector"](peers["encoder"](features))
    for length in frames:
        features = torch.randn(1, length, 160, generator=torch.Generator().manual_seed(0)).to(dtype)
        functions = {"geomix": partial(ours, features)}
        if peers:
            functions["transformers"] = partial(theirs, features)
        _agree(functions, 2e-4 if name == "float32" else 0.3)
        times = _alternate(functions, seconds)
        _line(f"encoder ({config.encoder.num_layers} layers) + projector, {length} frames, {name}", times, "s")
        if profile:
            for who, function in functions.items():
                _profile(function, who)
    print(f"peak memory so far {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB", flush=True)


def _agree(functions: dict[str, Callable[[], Tensor]], tolerance: float) -> None:
    outputs = [function().float() for function in functions.values()]
    difference = max(float((output - outputs[0]).abs().max()) for output in outputs)
    if difference > tolerance:
        raise SystemExit(f"outputs differ by {difference:.2e}: nothing is timed")


def _bench_decoder(config: GraniteConfig, name: str, seconds: float, prompt: int = 200, tokens: int = 16) -> None:
    dtype, layers = getattr(torch, name), config.text.num_hidden_layers
    with torch.device("meta"):
        decoder = GraniteDecoder(config.text, tied=True)
    peers = _peer(config, {"decoder": _random(decoder, dtype)})
    ids = torch.randint(1, 49000, (1, prompt), generator=torch.Generator().manual_seed(0))

    def ours(new: int) -> Tensor:
        cache = decoder.new_cache(1, prompt + new)
        logits = decoder(decoder.model.embed_tokens(ids), None, cache, last_only=True)
        for _ in range(new):
            logits = decoder(decoder.model.embed_tokens(logits[:, -1:].argmax(-1)), None, cache)
        return logits

    def theirs(new: int) -> Tensor:
        out = peers["decoder"](input_ids=ids, use_cache=True, logits_to_keep=1)
        for _ in range(new):
            ids_new = out.logits[:, -1:].argmax(-1)
            out = peers["decoder"](input_ids=ids_new, past_key_values=out.past_key_values, use_cache=True)
        return out.logits

    for new, what in (
        (0, f"decoder ({layers} of 40 layers), prompt of {prompt}, {name}"),
        (tokens, f"the same and {tokens} tokens"),
    ):
        functions = {"geomix": lambda n=new: ours(n)}
        if peers:
            functions["transformers"] = lambda n=new: theirs(n)
        if new == 0:
            _agree(functions, 2e-4 if name == "float32" else 0.3)
        _line(what, _alternate(functions, seconds), "s")
