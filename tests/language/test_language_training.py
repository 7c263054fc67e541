"""Training the language models: batches, perplexity, collapse to the unigram table and its detector, resume, diagnostics."""

import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.language.perplexity import cross_entropy_of_unigrams, unigram_entropy
from geomix.language.task import LanguageTask
from geomix.language.training import SELECTION, build_model, partner_diagnostics, train_arm
from geomix.models.transformer_lm import load_language_model
from geomix.settings import settings_hash
from geomix.training.options import TrainerOptions
from geomix.training.record import About, RunRecord

BLOCK, VOCABULARY = 16, 24
PUBLISHED = Path(__file__).resolve().parents[2] / "results/published"


def chain(tokens, seed):
    """A Markov chain in which the next token is one of two, of frequencies that differ: context is worth a lot."""
    generator = np.random.default_rng(seed)
    followers = np.random.default_rng(0).integers(0, VOCABULARY, size=(VOCABULARY, 2))
    ids = [0]
    for choice in generator.random(tokens - 1):
        ids.append(int(followers[ids[-1], int(choice < 0.2)]) if choice < 0.9 else int(generator.integers(VOCABULARY)))
    return np.array(ids, dtype=np.int32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A prepared corpus of three chains with the files and the summary that `prepare_corpus` writes."""
    folder = tmp_path_factory.mktemp("chain")
    splits = {"train": chain(BLOCK * 17 * 36 + 5, 1), "valid": chain(17 * 30, 2), "test": chain(17 * 20 + 3, 3)}
    for split, ids in splits.items():
        np.save(folder / f"{split}.npy", ids)
    parts = {
        split: {
            "tokens": len(ids),
            "unigram_cross_entropy": cross_entropy_of_unigrams(splits["train"], ids, VOCABULARY),
        }
        for split, ids in splits.items()
    }
    summary = {"name": "chain", "vocabulary": VOCABULARY, "splits": parts}
    summary["hashes"] = {split: hashlib.sha256(ids.tobytes()).hexdigest() for split, ids in splits.items()}
    write_json(folder / "corpus.json", {**summary, "unigram_entropy": unigram_entropy(splits["train"])})
    return folder


def settings(mixer=None, seed=0, model=None, **training):
    return {
        "track": "language",
        "seed": seed,
        "model": {
            "positions": BLOCK, "blocks": 2, "width": 32, "ff_dim": 64, "init_std": 0.1,
            "mixer": mixer or {"mixer": "pair", "rank": 6, "offsets": [1, 2, 4]}, **(model or {}),
        },
        "training": {
            "epochs": 2, "batch": 16, "accumulation": 1, "optimizer": "adamw", "learning_rate": 0.01, "learning_rate_by_grade": [], "weight_decay": 0.01,
            "max_updates": None, "schedule": "cosine_per_epoch", "warmup": 1, "clip": 0.0, "precision": "fp32", **training,
        },
    }  # fmt: skip


def train(data, tmp_path, given, detect_after=10, log_every=50):
    """Train into tmp_path/out; returns the record as its file has it."""
    places = {"state_root": tmp_path / "state", "out": tmp_path / "out", "device": "cpu"}
    options = TrainerOptions(SELECTION, detect_after, save_minutes=10.0, log_every=log_every)
    record = train_arm(given, data, about=About("test", "arm", "chain"), options=options, **places)
    assert RunRecord.read(tmp_path / "out/record.json") == record
    return read_json(tmp_path / "out/record.json")


def task_of(data, seed=0, batch=16):
    return LanguageTask(data, positions=BLOCK, batch=batch, seed=seed, device=torch.device("cpu"), flops_per_token=1.0)


def test_batches_hold_every_block_once_and_depend_on_seed_and_epoch_alone(data):
    blocks = np.load(data / "train.npy")
    count = len(blocks) // (BLOCK + 1)
    whole = blocks[: count * (BLOCK + 1)].reshape(count, BLOCK + 1)
    epochs = {}
    for seed, epoch in ((0, 1), (0, 2), (1, 1)):
        batches = task_of(data, seed, batch=25).batches(epoch)
        assert [len(b.inputs["tokens"]) for b in batches] == [25] * (count // 25) + [count % 25]
        tokens = torch.cat([b.inputs["tokens"] for b in batches])
        targets = torch.cat([b.inputs["targets"] for b in batches])
        assert (tokens[:, 1:] == targets[:, :-1]).all()
        rows = np.concatenate([tokens.numpy(), targets[:, -1:].numpy()], axis=1)
        assert (rows[np.lexsort(rows.T)] == whole[np.lexsort(whole.T)]).all()
        assert sum(b.work for b in batches) == count * BLOCK
        epochs[seed, epoch] = rows
    again = task_of(data, 0, batch=25).batches(2)
    assert (again[3].inputs["tokens"].numpy() == epochs[0, 2][75:100, :-1]).all()
    assert (epochs[0, 1] != epochs[0, 2]).any() and (epochs[0, 1] != epochs[1, 1]).any()


def test_perplexity_is_that_of_a_loop_over_tokens(data):
    model = build_model(settings(), VOCABULARY).eval()
    found = task_of(data, batch=7).perplexity(model, "test")
    tokens = torch.from_numpy(np.load(data / "test.npy")[: 17 * 20].reshape(20, 17)).long()
    losses = F.cross_entropy(model.logits(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none").detach()
    assert found["token"] == pytest.approx(math.exp(losses.mean()), rel=1e-5)
    means = [losses[i : i + 7].mean() for i in (0, 7, 14)]  # the last batch has six blocks
    assert found["batch_mean"] == pytest.approx(math.exp(sum(means) / 3), rel=1e-5)
    assert found["batch_mean"] != pytest.approx(found["token"], rel=1e-6)


@pytest.mark.parametrize("mixer", [None, {"mixer": "attention", "heads": 2}], ids=["pair", "attention"])
def test_a_run_learns_context_and_leaves_its_record(data, tmp_path, mixer):
    given = settings(mixer)
    record = train(data, tmp_path, given)
    floor = json.loads((data / "corpus.json").read_text())["splits"]["valid"]["unigram_cross_entropy"]
    assert math.log(record["perplexity"]["valid"]["token"]) < 0.8 * floor
    epochs = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    epochs = {line["epoch"]: line for line in epochs if line["kind"] == "epoch"}
    best = min(epochs, key=lambda n: epochs[n]["dev_perplexity"])
    assert record["best_epoch"] == best
    assert record["perplexity"]["valid"]["batch_mean"] == pytest.approx(epochs[best]["dev_perplexity"], rel=1e-6)
    # the model on disk is the best epoch's, and needs nothing else
    model = load_language_model(tmp_path / "out")
    assert task_of(data).perplexity(model, "test") == pytest.approx(record["perplexity"]["test"], rel=1e-6)
    assert (record["data"]["block"], record["data"]["splits"]["valid"]["blocks"]) == (BLOCK, 30)
    assert settings_hash(record["settings"], record["data"]["hashes"]) == record["settings_hash"]
    # the keys of records that are published, whose readers stay
    assert set(record) == set(read_json(PUBLISHED / "wikitext2/language/grassmann/seed0/record.json"))
    assert record["corpus"] == "chain" and record["mixer"] == given["model"]["mixer"]


def test_the_recipes_rate_is_constant_within_an_epoch_after_the_warm_up(data, tmp_path):
    """lr_e = 5e-3 (1 + cos(pi e / 4)); with a warm-up of seven updates the first ones rise in proportion."""
    rates = {}
    for warmup in (1, 7):
        given = settings({"mixer": "attention", "heads": 2}, epochs=4, batch=64, warmup=warmup)
        train(data, tmp_path / str(warmup), given, detect_after=None, log_every=4)
        log = (tmp_path / str(warmup) / "out/log.jsonl").read_text().splitlines()
        rates[warmup] = {line["update"]: line["lr"] for line in map(json.loads, log) if line["kind"] == "step"}
    # an epoch has nine updates: 576 blocks, 64 an update
    cosine = {u: 5e-3 * (1 + math.cos(math.pi * ((u - 1) // 9) / 4)) for u in (1, *range(4, 37, 4))}
    assert rates[1] == pytest.approx(cosine)
    assert rates[7] == pytest.approx({u: rate * min(1, u / 7) for u, rate in cosine.items()})


def test_the_best_epoch_is_kept_when_later_ones_are_worse(data, tmp_path):
    """A rate that wrecks the model after the first epoch: the cosine of three epochs starts high and never recovers."""
    record = train(data, tmp_path, settings(epochs=3, learning_rate=0.01), detect_after=None)
    log = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    scores = [line["dev_perplexity"] for line in log if line["kind"] == "epoch"]
    assert record["perplexity"]["valid"]["batch_mean"] == pytest.approx(min(scores), rel=1e-6)


def test_a_finished_run_is_not_trained_again(data, tmp_path):
    first = train(data, tmp_path, settings(epochs=1))
    again = train(data, tmp_path, settings(epochs=1))
    assert again["updates"] == first["updates"] and again["attempts"] == first["attempts"]
    assert again["perplexity"] == first["perplexity"]
    other = train(data, tmp_path, settings(epochs=1, seed=1))
    assert other["settings_hash"] != first["settings_hash"] and other["perplexity"] != first["perplexity"]


def test_more_epochs_go_on_where_the_schedule_allows_it(data, tmp_path, capsys):
    def of(epochs, schedule):
        return settings(epochs=epochs, schedule=schedule)

    whole = train(data, tmp_path / "whole", of(3, "constant"))
    train(data, tmp_path / "more", of(2, "constant"))
    more = train(data, tmp_path / "more", of(3, "constant"))
    assert "language/arm/seed0: goes on from a copy of the 2 epochs in" in capsys.readouterr().err
    assert more["perplexity"] == whole["perplexity"] and more["attempts"] == 2
    files = [(tmp_path / name / "out/model.safetensors").read_bytes() for name in ("whole", "more")]
    assert files[0] == files[1]
    train(data, tmp_path / "more", of(1, "cosine_per_epoch"))
    anew = train(data, tmp_path / "more", of(2, "cosine_per_epoch"))
    assert anew["attempts"] == 1
    assert "training.schedule cosine_per_epoch depends on the number of epochs" in capsys.readouterr().err


def test_collapse_to_the_unigram_table_is_stopped_with_its_sentence(data, tmp_path):
    """Post-norm, small initial weights and a high rate: the run answers with the word frequencies, whatever the context."""
    given = settings(
        {"mixer": "attention", "heads": 2},
        model={"blocks": 6, "init_std": 0.02},
        learning_rate=0.3,
        epochs=4,
    )
    sentence = r"arm/seed0 sits at the unigram floor \(dev loss ([0-9.]+), .* ([0-9.]+)\) after [0-9]+ updates: lower"
    with pytest.raises(UserError, match=sentence) as stopped:
        train(data, tmp_path, given, detect_after=30)
    assert not (tmp_path / "out" / "record.json").exists()
    # it did collapse, and did not merely diverge: the loss is that of the word frequencies, within a tenth
    loss, floor = map(float, re.search(sentence, str(stopped.value)).groups())
    assert floor == pytest.approx(task_of(data).floor, abs=1e-3)
    assert 0.98 * floor < loss < 1.1 * floor
    # the same run at an ordinary rate learns
    given["training"]["learning_rate"] = 0.003
    assert math.log(train(data, tmp_path, given, detect_after=30)["perplexity"]["valid"]["token"]) < 0.9 * floor


def test_diagnostics_by_a_loop():
    """Median sine, share below 0.05 and mean gate of the first layer, pair by pair."""
    model = build_model(settings(), VOCABULARY).double().eval()
    tokens = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        # make some partners nearly parallel
        model.blocks[0].mixer.reduce.weight.mul_(0.02)
        model.blocks[0].mixer.reduce.bias.fill_(1.0)
        found = partner_diagnostics(model, tokens)
        x = model.tokens(tokens) + model.positions.weight[:BLOCK]
        z = model.blocks[0].mixer.reduce(x)
        sines = []
        for sentence in z:
            for offset in (1, 2, 4):
                for t in range(offset, BLOCK):
                    a, b = sentence[t - offset], sentence[t]
                    cosine = float(a @ b / (a.norm() * b.norm()))
                    sines.append(math.sqrt(max(0.0, 1 - cosine**2)))
    assert [entry["block"] for entry in found] == [0, 1]
    assert found[0]["sine_quantiles"]["0.5"] == pytest.approx(np.median(sines), rel=1e-4)
    assert 0 < found[0]["narrow_share"] == pytest.approx(np.mean(np.array(sines) < 0.05), abs=1e-6)
    assert 0 < found[0]["mean_gate"] < 1
    assert partner_diagnostics(build_model(settings({"mixer": "attention", "heads": 2}), VOCABULARY), tokens) == []
