"""A made-up run: the files that training, scoring and the study's description leave behind."""

import json
import random
from pathlib import Path

import numpy as np

from geomix.files import read_json, write_json, write_text
from geomix.speech.scoring import score_texts, write_score
from geomix.studies.comparison import compare_study, judge_hypothesis
from geomix.studies.gate import measure_parity
from geomix.studies.speech import SPEECH
from geomix.training.results import JUDGED, Study

PUBLISHED = Path(__file__).resolve().parents[2] / "results/published"
RECORD = PUBLISHED / "an4/own/attention/seed0/record.json"  # what a made-up record has besides
WORDS = "ALPHA BRAVO CHARLIE DELTA ECHO FOXTROT GOLF HOTEL INDIA JULIET".split()
RATES = {"attention": 0.10, "grassmann": 0.13, "symmetric": 0.132, "no_mixer": 0.18}
PAIRS = ("grassmann", "symmetric")
PARAMETERS = {"attention": 26_958_472, "grassmann": 26_021_992, "symmetric": 26_021_992, "no_mixer": 26_945_032}


TIES = {"text": "Grassmann ties symmetric.", "holds": "equal(grassmann, symmetric)"}


def make_study(
    folder, *, arms=tuple(RATES), tracks=("own",), seeds=(0, 1, 2), target=12.0, mode="enforce", source=None, **more
):
    """Write study.json as the configuration has it; `source` says where the target's number is published."""
    targets = [{"set": "test", "wer": target, "tolerance": 0.5} | ({"source": source} if source else {})]
    study = {
        "run": "made_up",
        "corpus": {"name": "words", "kind": "folder", "train": ["train"], "dev": ["dev"], "test": ["dev", "test"]},
        "arms": {arm: {"mixer": "pair" if arm in PAIRS else arm} for arm in arms},
        "study": {"arms": list(arms), "tracks": list(tracks), "seeds": list(seeds)},
        "hypothesis": [TIES] if {"grassmann", "symmetric"} <= set(arms) else [],
        "comparison": {
            "planned": [["grassmann", other] for other in ("attention", "symmetric", "no_mixer") if other in arms],
            "resamples": 1000,
            "seed": 0,
        },
        "gate": {
            "track": tracks[0],
            "arm": "attention",
            "seeds": [0],
            "targets": targets,
            "mode": mode,
            "fallback": None,
        },
        "references": [{"system": "Someone's Conformer", "source": "a paper, Table 1", "wer": {"test": 9.8}}],
        **more,
    }
    write_json(folder / "study.json", study)
    return study


SALTS = {"dev": 1, "test": 2}


def references(name, speakers=24, utterances=6):
    """(id, speaker, words, difficulty) of each utterance of a set."""
    common, said = random.Random(SALTS[name]), []
    for s in range(speakers):
        difficulty = common.uniform(0.5, 1.5)
        for u in range(utterances):
            words = [common.choice(WORDS) for _ in range(common.randint(4, 14))]
            said.append((f"s{s:02}-{u}", f"s{s:02}", words, difficulty))
    return said


def make_training(folder, track, arm, seed, *, rate, speakers=24, utterances=6, unmatched=False, epochs=12, blocks=6):
    """Write the record, log, diagnostics and scores of one training with about `rate` errors a word."""
    place = folder / track / arm / f"seed{seed}"
    rng = random.Random(f"{track} {arm} {seed}")
    rate *= 1 + 0.03 * rng.uniform(-1, 1)
    for name in SALTS:
        said = references(name, speakers, utterances)
        texts, who = {id: " ".join(words) for id, _, words, _ in said}, {id: speaker for id, speaker, _, _ in said}
        hypotheses = {
            id: " ".join(rng.choice(WORDS) if rng.random() < rate * difficulty else w for w in words)
            for id, _, words, difficulty in said
        }
        write_text(place / "hyp" / name / "text", "".join(f"{id} {text}\n" for id, text in hypotheses.items()))
        write_score(
            score_texts(texts, hypotheses, who, set=name),
            place / "score" / f"{name}.json",
            place / "score" / f"{name}.tsv",
        )
    write_json(
        place / "record.json",
        read_json(RECORD)
        | {
            "run": "made_up", "corpus": "words", "track": track, "arm": arm, "seed": seed,
            "parameters": PARAMETERS.get(arm, 26_000_000), "flops_per_audio_second": 6.2e9 + 1e8 * len(arm),
            "unmatched": unmatched, "gated": arm == "grassmann", "commit": "a" * 40, "dirty": False, "device": "cpu",
            "data": {"utterances": 900, "seconds": 3600.0, "speed_histogram": {"0.9": 300, "1.0": 300, "1.1": 300}},
            "dropped": {"too_short": ["u1", "u2"], "too_long": 0}, "epochs": epochs, "updates": 40 * epochs,
            "wall_seconds": 360.0 + seed, "audio_seconds_per_second": 200.0 + 7 * len(arm), "mfu": 0.31,
            "peak_memory_bytes": 3 * 2**30, "nondeterministic_ops": ["ctc_loss_backward"],
        },
    )  # fmt: skip
    lines = []
    for epoch in range(1, epochs + 1):
        fall = 60 * np.exp(-epoch / 4) + 300 * rate * (1 + 0.1 * rng.random())
        lines.append({"kind": "step", "epoch": epoch, "update": 40 * epoch, "loss": fall})
        lines.append({"kind": "epoch", "epoch": epoch, "train_loss": fall, "dev_cer": fall / 3 + 2 * rng.random()})
    write_text(place / "log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    if arm in PAIRS:

        def block(i, centre):
            quantiles = {str(q): min(1.0, centre + 0.4 * (q - 0.5)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
            return {"block": i, "sine_quantiles": quantiles, "thin_share": 0.001, "mean_gate": 0.5 + 0.3 * centre}

        write_json(
            place / "diagnostics.json",
            {"start": [block(i, 0.95 - 0.12 * i) for i in range(blocks)], "end": [block(i, 0.85) for i in range(blocks)]},
        )  # fmt: skip
    else:
        write_json(place / "diagnostics.json", {"start": [], "end": []})


def write_comparisons(folder):
    """What the rule compare does."""
    write_json(folder / "comparisons.json", compare_study(SPEECH, folder))
    write_json(folder / JUDGED, judge_hypothesis(SPEECH, Study.read(folder)))


def make_run(folder, **options):
    """A whole run: study, trainings, comparisons and parity. `options` go to `make_study`; returns the study."""
    study = make_study(folder, **options)
    for track in study["study"]["tracks"]:
        for arm in study["study"]["arms"]:
            for seed in study["study"]["seeds"]:
                make_training(folder, track, arm, seed, rate=RATES.get(arm, 0.15))
    write_comparisons(folder)
    if study["gate"]:
        measure_parity(SPEECH, folder, study["gate"])
    return study
