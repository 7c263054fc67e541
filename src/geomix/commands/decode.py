"""`geomix decode`: decode and score a set with trained models, several arms and seeds at once, and compare the arms."""

from __future__ import annotations

import argparse
import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from geomix.commands.arguments import positive, whole
from geomix.commands.compare import Side, add_bootstrap, describe
from geomix.errors import UserError
from geomix.files import write_json
from geomix.speech.normalisers import NORMALISERS
from geomix.speech.scoring import Score

if TYPE_CHECKING:
    from geomix.speech.evaluation_set import EvaluationSet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="folders of trained models, results/<run>/<track>/<arm>/seed<n>; or NAME=FOLDER, or NAME/seed<n>=FOLDER",
    )
    parser.add_argument(
        "set",
        type=Path,
        metavar="SET",
        help="manifest (.tsv), Kaldi folder, folder in LibriSpeech's layout, prepared set, or a folder with --reference",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep hypotheses, scores and comparisons.json there")
    parser.add_argument(
        "--reference", type=Path, metavar="FILE", help="Kaldi text or manifest of a folder's recordings"
    )
    parser.add_argument("--utt2spk", type=Path, metavar="FILE", help="Kaldi utt2spk file beside --reference")
    parser.add_argument("--resample", action="store_true", help="convert other sample rates and mix channels down")
    parser.add_argument("--allow-pipes", action="store_true", help="run the commands of a Kaldi wav.scp")
    parser.add_argument(
        "--normaliser", default="none", choices=NORMALISERS, help="of texts and hypotheses; default: none"
    )
    parser.add_argument(
        "--batch-seconds", type=positive, default=240.0, metavar="S", help="audio of a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--long-form",
        type=positive,
        nargs="+",
        metavar="S",
        help="join each speaker's utterances to recordings of so many seconds (15 30 60 120, say), decode each whole, and tell "
        "real-time factor and peak memory beside the rates",
    )
    parser.add_argument(
        "--lm",
        type=Path,
        metavar="ARPA",
        help="also decode by beam search with this n-gram model of words, as arm NAME+lm",
    )
    parser.add_argument(
        "--lm-weight", type=float, default=0.5, metavar="W", help="of ln P(words); default: %(default)s"
    )
    parser.add_argument("--word-score", type=float, default=1.0, metavar="W", help="of each word; default: %(default)s")
    parser.add_argument("--beam", type=whole(), default=16, metavar="N", help="prefixes kept; default: %(default)s")
    add_bootstrap(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")


@dataclass(frozen=True)
class Model:
    """A model's folder, and the arm and seed it stands for."""

    folder: Path
    arm: str
    seed: int

    @property
    def place(self) -> Path:
        """Its folder below that of the results."""
        return Path(self.arm) / f"seed{self.seed}"


def run(arguments: argparse.Namespace) -> None:
    """Decode, score and compare; nothing of the models' runs is changed."""
    from geomix.speech.evaluation_set import Reference, open_set

    models, search = named_models(arguments.models), _search(arguments)
    if arguments.utt2spk and not arguments.reference:
        raise UserError(f"--utt2spk {arguments.utt2spk}: has no --reference beside it: give the texts, too")
    reference = Reference(arguments.reference, arguments.utt2spk) if arguments.reference else None
    with tempfile.TemporaryDirectory() as work, _folder(arguments.out) as out:
        found = open_set(
            arguments.set,
            Path(work),
            reference=reference,
            resample=arguments.resample,
            normaliser=arguments.normaliser,
            allow_pipes=arguments.allow_pipes,
        )
        entries = []
        for each in _sets(found, Path(work), arguments):
            scores = {model: _decode(model, each, out, arguments) for model in models}
            if search:  # a second set of hypotheses, under another name
                scores |= {
                    m: _decode(m, each, out, arguments, search) for m in (replace(m, arm=f"{m.arm}+lm") for m in models)
                }
            entries += _comparisons(scores, each.name, arguments)
        if arguments.out:
            write_json(out / "comparisons.json", entries)


def _sets(found: EvaluationSet, work: Path, arguments: argparse.Namespace) -> Iterator[EvaluationSet]:
    """The set itself, or what it is joined to, the shortest recordings first; the head of each one's table is printed."""
    from geomix.speech.long_form import joined_set

    lengths = sorted(set(arguments.long_form or ()))
    for each in (joined_set(found, seconds, work) for seconds in lengths) if lengths else [found]:
        seconds = [u.seconds for u in each.utterances]
        print(f"{each.name}: {len(seconds):,} utterances, {sum(seconds):,.0f} s, the longest {max(seconds):.1f} s")
        cost = f" {'real time':>10} {'peak MB':>8}" if lengths else ""
        print(f"{'arm':<16} {'seed':>4} {'WER %':>8} {'CER %':>8} {'errors':>8} {'words':>8}{cost}")
        yield each
        print()


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() if out is None else contextlib.nullcontext(out) as folder:
        yield Path(folder)


def named_models(texts: Sequence[str]) -> list[Model]:
    """Models by what the command line calls them: FOLDER, NAME=FOLDER or NAME/seed<n>=FOLDER; the first arm leads.

    A folder called seed<n> is that seed of the arm that its parent is called after; another one is an arm of its own.
    """
    models: list[Model] = []
    for text in texts:
        name, _, folder = text.rpartition("=") if "=" in text and not Path(text).is_dir() else ("", "", text)
        path = Path(folder)
        by_path = path.absolute()
        if not path.is_dir():
            raise UserError(f"{folder}: no such folder: give the folder of a trained model")
        match = re.fullmatch(r"(?:(?P<arm>[^/=]+)/)?seed(?P<seed>\d+)", name) or re.fullmatch(
            r"seed(?P<seed>\d+)", by_path.name
        )
        seed = int(match["seed"]) if match else 0
        arm = (name.partition("/")[0] or by_path.parent.name) if match else name or by_path.name
        if twice := next((m for m in models if (m.arm, m.seed) == (arm, seed)), None):
            raise UserError(
                f"{folder} and {twice.folder}: are both {arm}, seed {seed}: call one of them otherwise, "
                f"other/seed{seed}={folder}"
            )
        models.append(Model(path, arm, seed))
    return models


def _search(arguments: argparse.Namespace) -> Callable[..., dict[str, str]] | None:
    """The search with the language model of --lm, as `greedy_decode` is called; None without one."""
    from geomix.speech.beam import Beam, BeamSearch
    from geomix.speech.ngram import NGram

    if not arguments.lm:
        return None
    lm, beam = NGram.read(arguments.lm), Beam(arguments.lm_weight, arguments.word_score, arguments.beam)
    return lambda model, store, tokenizer, ids, **options: BeamSearch(tokenizer, lm, beam).decode(
        model, store, ids, **options
    )


def _decode(
    model: Model, found: EvaluationSet, out: Path, arguments: argparse.Namespace, search: Callable | None = None
) -> Score:
    """Write hypotheses and scores as the study's rules decode and score do, print the rates and return the score."""
    from geomix.speech.decoding import decode_set
    from geomix.speech.scoring import read_text, score_texts, write_score
    from geomix.training import devices

    folder = out / model.place
    text = folder / "hyp" / found.name / "text"
    # long recordings one at a time: what is measured is a recording's memory, not a batch's
    batch = 1.0 if arguments.long_form else arguments.batch_seconds
    begun = time.perf_counter()
    decode_set(
        model.folder, found.manifest, found.features, text, batch_seconds=batch, device=arguments.device, search=search
    )
    wall = time.perf_counter() - begun
    utterances = found.utterances
    normaliser = arguments.normaliser
    score = score_texts(
        {u.id: u.text for u in utterances},
        read_text(text),
        {u.id: u.speaker for u in utterances},
        set=found.name,
        normaliser=normaliser,
        reference_name=str(found.manifest),
        hypothesis_name=str(text),
    )
    place = folder / "score" / found.name
    write_score(
        score, place.with_name(f"{place.name}.json"), place.with_name(f"{place.name}.tsv"),
        normaliser=None if normaliser == "none" else normaliser,
    )  # fmt: skip
    words, letters, cost = score.words, score.characters, ""
    if arguments.long_form:
        peak = devices.peak_memory(devices.choose_device(arguments.device))
        cost = f" {wall / sum(u.seconds for u in utterances):>10.4f} {peak / 1e6:>8,.0f}"
    rates = f"{words.rate:>8.2f} {letters.rate:>8.2f} {words.errors:>8,} {words.reference:>8,}"
    print(f"{model.arm:<16} {model.seed:>4} {rates}{cost}", flush=True)
    return score


def _comparisons(scores: dict[Model, Score], name: str, arguments: argparse.Namespace) -> Iterator[dict]:
    """Each arm against each one named before it, printed; entries as those of a study's comparisons.json."""
    from geomix.speech.comparison import compare_systems

    arms: dict[str, Side] = {}
    for model, score in scores.items():
        arms.setdefault(model.arm, Side(model.arm, {})).scores[f"{model.arm} seed {model.seed}"] = score
    by_seed = {arm: {m.seed: s for m, s in scores.items() if m.arm == arm} for arm in arms}
    options = {"resamples": arguments.resamples, "seed": arguments.seed}
    for b, a in combinations(arms, 2):
        entry = compare_systems(by_seed[a], by_seed[b], (a, b), **options)
        print(f"\n{describe(arms[a], arms[b], entry, **options)}")
        yield {"set": name, "a": a, "b": b, "planned": False, "holm_p": None, **entry}
