"""Apply each known fault of a Granite Speech implementation to the real source and see which check catches it.

    python -m tests.granite_mutations           prints a line a fault, then `mutations caught N/N`; exit status 1 if one escapes

The faults are those of the published implementations' issue lists and of the review of transformers 4.57.1: each is a
replacement of source text in one module, imported afresh, on which the checks of tests/models/granite/checks.py run.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GRANITE = "geomix.models.granite."


@dataclass(frozen=True)
class Mutation:
    """`old`, which occurs once in the module's source, becomes `new`."""

    fault: str
    module: str
    old: str
    new: str


def _granite(module: str, *faults: tuple[str, str, str]) -> list[Mutation]:
    return [Mutation(fault, GRANITE + module, old, new) for fault, old, new in faults]


MUTATIONS = [
    *_granite(
        "encoder",
        ("first feed-forward added in full", "self.ff1(x), alpha=0.5", "self.ff1(x), alpha=1.0"),
        ("second feed-forward added in full", "self.ff2(x), alpha=0.5", "self.ff2(x), alpha=1.0"),
        ("self-conditioning skipped", "self.out_mid(middle.softmax(dim=-1))", "0"),
        ("self-conditioning one block late", "index == self.config.num_layers // 2", "index == self.config.num_layers // 2 + 1"),
        ("self-conditioning from log-probabilities", "middle.softmax(dim=-1)", "middle.log_softmax(dim=-1)"),
        ("Shaw table read at offset context_size", "self.centre = config.num_heads, config.context_size, config.max_pos_emb",
         "self.centre = config.num_heads, config.context_size, config.context_size"),
        ("k and v swapped", "k, v = self.to_kv(x)", "v, k = self.to_kv(x)"),
        ("convolution before attention", "x = x + self.attn(x, mask)\n        x = x + self.conv(x, mask)",
         "x = x + self.conv(x, mask)\n        x = x + self.attn(x, mask)"),
        ("full attention", "positions, context=self.context", "F.pad(positions, (0, 0, 300, 300)), context=self.context + 300"),
        ("SiLU before BatchNorm", "x = self.depth_conv(x)", "x = F.silu(self.depth_conv(x))"),
        ("encoder LayerNorm eps 1e-6", "self.post_norm = nn.LayerNorm(config.hidden_dim)",
         "self.post_norm = nn.LayerNorm(config.hidden_dim, eps=1e-6)"),
        ("attention LayerNorm eps 1e-6", "self.pre_norm = nn.LayerNorm(config.hidden_dim)",
         "self.pre_norm = nn.LayerNorm(config.hidden_dim, eps=1e-6)"),
        ("BatchNorm eps 1e-3", "nn.BatchNorm1d(inner)", "nn.BatchNorm1d(inner, eps=1e-3)"),
        ("GLU halves swapped", "self.up_conv.bias), dim=-1)", "self.up_conv.bias).roll(self.up_conv.weight.shape[0] // 2, -1))"),
        ("last LayerNorm of a block missing", "return self.post_norm(x)", "return x"),
        ("depthwise kernel one frame off", "[:, : x.shape[1]]", ".roll(1, 1)[:, : x.shape[1]]"),
        ("padding reaches the convolution", "x = x.masked_fill(~mask.unsqueeze(-1), 0)\n        x = self.depth_conv", "x = self.depth_conv"),
        ("padding is attended to", "context=self.context, mask=mask", "context=self.context, mask=None"),
        ("encoder output not zero beyond a length", "x = x.masked_fill(~mask.unsqueeze(-1), 0)\n        return x, middle", "x = x\n        return x, middle"),
    ),
    Mutation("Shaw distances with the wrong sign", "geomix.mixers.blocked_attention.module", "positions.flip(0).t()", "positions.t()"),
    Mutation("Shaw term dropped", "geomix.mixers.blocked_attention.module", ".add_(shaw)", ""),
    Mutation("Shaw term not scaled", "geomix.mixers.blocked_attention.module", ".add_(shaw)", ".add_(shaw * width**0.5)"),
    Mutation("last short window left out", "geomix.mixers.blocked_attention.module", "if start < end:", "if start < end and (size == context or time < context):"),
    *_granite(
        "projector",
        ("gelu by tanh", "F.gelu(self.dense(x))", 'F.gelu(self.dense(x), approximate="tanh")'),
        ("Q-Former eps 1e-5", "self.LayerNorm = nn.LayerNorm(width, eps=eps)", "self.LayerNorm = nn.LayerNorm(width, eps=1e-5)"),
        ("query LayerNorm eps 1e-5", "self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)",
         "self.layernorm = nn.LayerNorm(config.hidden_size, eps=1e-5)"),
        ("cross-attention in layer 0 only", "if self.crossattention is not None:", "if self.crossattention is not None and x.shape[0] == 1:"),
        ("query LayerNorm missing", "x = self.layernorm(query)", "x = query"),
        ("pre-norm instead of post-norm", "return self.LayerNorm(self.dense(x) + residual)", "return self.LayerNorm(self.dense(x)) + residual"),
        ("last window cut off", "F.pad(hidden, (0, 0, 0, -time % self.config.window_size))", "hidden[:, : time // self.config.window_size * self.config.window_size]"),
        ("last window counted in part", "-(-frames // self.config.window_size) * self.config.queries", "-(-frames * self.config.queries // self.config.window_size)"),
    ),
    *_granite(
        "decoder",
        ("no embedding multiplier", "x = embeddings * self.config.embedding_multiplier", "x = embeddings"),
        ("residual multiplier 1", "self.residual_multiplier = config.residual_multiplier", "self.residual_multiplier = 1.0"),
        ("residual multiplier on attention only", "x + self.residual_multiplier * self.mlp(", "x + self.mlp("),
        ("1/sqrt(d) instead of the attention multiplier", "config.num_key_value_heads, config.attention_multiplier", "config.num_key_value_heads, config.head_width**-0.5"),
        ("attention multiplier and 1/sqrt(d)", "config.num_key_value_heads, config.attention_multiplier",
         "config.num_key_value_heads, config.attention_multiplier * config.head_width**-0.5"),
        ("RoPE on interleaved pairs", "first, second = x.chunk(2, dim=-1)\n    return x * cos + torch.cat((-second, first), dim=-1) * sin",
         "half = x.shape[-1] // 2\n    cos, sin = (y[..., :half].repeat_interleave(2, -1) for y in (cos, sin))\n"
         "    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin"),
        ("RoPE theta 10000 whatever the config", "self.config.rope_theta, embeddings.dtype", "1e4, embeddings.dtype"),
        ("logits not divided by logits_scaling", " / self.config.logits_scaling", ""),
        ("logits multiplied by logits_scaling", " / self.config.logits_scaling", " * self.config.logits_scaling"),
        ("untied head ignored", "if self.lm_head is None else self.lm_head.weight", "if True else self.lm_head.weight"),
        ("last norm missing", "return self.norm(x)", "return x"),
        ("positions count the padding", "mask.cumsum(1) - 1).clamp(min=0)", "torch.ones_like(mask).long().cumsum(1) - 1) * 2"),
        ("padding of the prompt is attended to", "& (book.real[:, None, : book.length] | (keys == queries))", "& (book.real[:, None, : book.length] | True)"),
        ("cache forgets to reorder beams", "self.keys.index_select(1, rows), self.values.index_select(1, rows)",
         "self.keys.repeat(1, len(rows) // self.keys.shape[1], 1, 1, 1), self.values.repeat(1, len(rows) // self.values.shape[1], 1, 1, 1)"),
        ("cache positions start anew", "self.next_position = self.next_position + mask.sum(1)", "self.next_position = mask.sum(1)"),
    ),
    *_granite(
        "model",
        ("embedding multiplier on text rows only", "torch.cat(rows).to(embeddings.dtype)",
         "torch.cat(rows).to(embeddings.dtype) / self.config.text.embedding_multiplier"),
        ("audio rows in the wrong order", "torch.cat(rows)", "torch.cat(rows).flip(0)"),
    ),
    *_granite(
        "features",
        ("frames counted as 1 + (N - 1) // 160", "(samples // HOP + 1) // 2", "(1 + (samples - 1) // HOP) // 2"),
        ("first frame dropped, not the last", "frames[..., :even, :]", "frames[..., frames.shape[-2] - even :, :]"),
        ("maximum over the bins of a frame only", "log.amax(dim=(-2, -1), keepdim=True)", "log.amax(dim=-1, keepdim=True)"),
        ("symmetric window", "torch.hann_window(WINDOW,", "torch.hann_window(WINDOW, periodic=False,"),
        ("natural logarithm", ".log10()", ".log()"),
        ("magnitude instead of power", ".abs().pow(2.0)", ".abs()"),
        ("waveforms padded before the STFT", "    if masked:", "    if not masked:"),
    ),
    *_granite(
        "adapter",
        ("adapter scaled by alpha", "else alpha / rank", "else alpha"),
        ("adapter of v_proj left out", "tensors[name] = (weight", 'tensors[name] = weight if "v_proj" in name else (weight'),
    ),
    *_granite(
        "checkpoint",
        ("BatchNorm statistics not loaded", "tensors.items()}, assign=True)",
         "tensors.items()}, assign=True)\n    for part in module.modules():\n        if isinstance(part, nn.BatchNorm1d):\n            part.reset_running_stats()"),
    ),
    *_granite(
        "tensors",
        ("3.2's two feed-forwards swapped", '"ff1.fn.fn.net.0": "ff1.up_proj",', '"ff1.fn.fn.net.0": "ff2.up_proj",'),
        ("3.2's blocks counted from 1", "{int(match[1]) - 1}", "{int(match[1])}"),
    ),
    *_granite(
        "search",
        ("beam scores not divided by the length", "score = float(values[item, rank]) / length**length_penalty", "score = float(values[item, rank])"),
        ("any candidate may finish", "ends[item, :beams]", "ends[item]"),
        ("end symbol kept", "hypothesis[:-1] if hypothesis[-1] in end else hypothesis", "hypothesis"),
    ),
]  # fmt: skip


class _MutatedFinder(importlib.abc.MetaPathFinder):
    """Imports one module from changed source text, all others as they are."""

    def __init__(self, mutation: Mutation) -> None:
        self.mutation = mutation

    def find_spec(self, name, path=None, target=None):
        if name != self.mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        source = Path(spec.origin).read_text(encoding="utf-8")
        if source.count(self.mutation.old) != 1:
            raise SystemExit(
                f"{spec.origin}: {self.mutation.old!r} occurs {source.count(self.mutation.old)} times: mend this mutation"
            )
        changed = compile(source.replace(self.mutation.old, self.mutation.new), spec.origin, "exec")

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname):
                return changed

        return importlib.util.spec_from_file_location(name, spec.origin, loader=Loader(name, spec.origin))


def _forget() -> None:
    """Let the next import read these modules again: the code that may change and all that holds on to it."""
    for name in list(sys.modules):
        if name.startswith(("geomix.models", "geomix.mixers", "tests.models.granite")):
            del sys.modules[name]


def caught_by(mutation: Mutation | None, folder: Path) -> str | None:
    """Run the checks on the mutated code; returns the first failure, or None when all pass."""
    _forget()
    finder = _MutatedFinder(mutation) if mutation else None
    if finder:
        sys.meta_path.insert(0, finder)
    try:
        checks = importlib.import_module("tests.models.granite.checks")
        golden = None
        for check in checks.CHECKS:
            try:
                golden = golden or checks.Golden(folder)
                check(golden)
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                return f"{check.__name__}: {first if isinstance(error, AssertionError) else f'{type(error).__name__}: {first}'}"
        return None
    finally:
        if finder:
            sys.meta_path.remove(finder)


def main() -> int:
    """Run all mutations; 0 when every one is caught and the code as it is passes."""
    folder = Path(os.environ.get("GEOMIX_DATA", ROOT.parent / "shared" / "data")) / "granite_golden"
    if not folder.is_dir():
        print(
            f"no golden tensors at {folder}: set GEOMIX_DATA to the folder that holds granite_golden", file=sys.stderr
        )
        return 1
    begun, caught = time.monotonic(), 0
    failure = caught_by(None, folder)
    if failure:
        print(f"the code as it is fails: {failure}", file=sys.stderr)
        return 1
    for mutation in MUTATIONS:
        failure = caught_by(mutation, folder)
        caught += failure is not None
        print(f"{'caught ' if failure else 'ESCAPED'}  {mutation.fault:52s}  {failure or ''}", flush=True)
    print(f"mutations caught {caught}/{len(MUTATIONS)}  ({time.monotonic() - begun:.0f} s)")
    return 0 if caught == len(MUTATIONS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
