"""The table of claims: what is measured, derived and not run, from the records alone."""

from geomix.files import read_json, write_json
from geomix.report.claims import Claim, claims_of_algebra, claims_of_study, claims_table
from geomix.report.names import PHASES
from tests.report.made_up import make_run, make_study


def test_claims_follow_the_records(tmp_path):
    assert [c.status for c in claims_of_study(tmp_path / "absent", "full study")] == ["not run"]
    planned = tmp_path / "planned"
    study = make_study(planned, arms=("attention", "grassmann"))
    write_json(planned / "study.json", study | {"sizes": {"attention": {"parameters": 26_958_472}}})
    found = claims_of_study(planned, "strong recipe")
    assert [c.status for c in found] == ["not run", "derived"]
    assert found[1].figure == "attention 26,958,472"

    run = tmp_path / "run"
    make_run(run, arms=("attention", "grassmann"), seeds=(0,))
    measured = claims_of_study(run, "small study")
    assert [c.status for c in measured] == ["measured", "measured"]
    entry = next(e for e in read_json(run / "comparisons.json") if e["planned"] and e["set"] == "test")
    assert measured[1].claim == "small study: grassmann against attention on test (own)"
    assert measured[1].figure.startswith(
        f"{entry['difference']:+.2f} points [{entry['low']:+.2f}, {entry['high']:+.2f}], "
        f"t [{entry['t_low']:+.2f}, {entry['t_high']:+.2f}], 1 seed, "
    )

    text = claims_table(
        [*claims_of_study(tmp_path / "absent", "full study"), Claim("bootstrap", "measured", "0.02 s", "`bench`")]
    )
    assert text.splitlines()[-1] == "| bootstrap | measured | 0.02 s | - | `bench` |"
    assert f"| full study | not run | - | - | `{tmp_path / 'absent'}` |" in text


def test_language_claims_are_the_planned_contrasts_on_the_test_text(tmp_path):
    assert [c.status for c in claims_of_study(tmp_path, "text")] == ["not run"]
    study = {
        "run": "r",
        "corpus": {},
        "arms": {},
        "study": {"arms": []},
        "comparison": {},
        "gate": {"arm": "transformer"},
    }
    write_json(tmp_path / "study.json", study)
    write_json(tmp_path / "parity.json", {"sentence": "transformer has a validation perplexity of 90.0", "seeds": [0]})
    planned = {
        "a": "grassmann",
        "b": "transformer",
        "planned": True,
        "seeds_a": 3,
        "seeds_b": 3,
        "ratio": 1.2345,
        "verdict": "tie",
    }
    entries = [
        planned | {"set": "test", "low": 0.9, "high": 1.6},
        planned | {"set": "valid"},
        planned | {"set": "test", "planned": False},
    ]
    write_json(tmp_path / "comparisons.json", entries)
    baseline, contrast = claims_of_study(tmp_path, "text")
    assert baseline.figure == "transformer has a validation perplexity of 90.0; seed 0"
    assert contrast.claim == "text: grassmann over transformer"
    assert contrast.figure == "perplexity ratio 1.234 [0.900, 1.600], 3 + 3 seeds: tie"


def test_algebra_claims_are_each_phase_s_sentence(tmp_path):
    assert {c.status for c in claims_of_algebra(tmp_path, "algebra")} == {"not run"}
    write_json(tmp_path / "components.json", {"summary": "qk tied with it", "comparisons": []})
    found = claims_of_algebra(tmp_path, "algebra")
    assert [c.claim.partition(", ")[2] for c in found if c.status == "measured"] == [PHASES["components"]]
    (measured,) = (c for c in found if c.status == "measured")
    assert measured.figure == "qk tied with it" and measured.where == f"`{tmp_path}/components.md`"
    assert len(found) == len(PHASES)


def test_claims_say_parity_only_of_published_numbers(tmp_path):
    make_run(tmp_path / "own", arms=("attention", "grassmann"), seeds=(0,))
    make_run(tmp_path / "published", arms=("attention", "grassmann"), seeds=(0,), source="a paper")
    make_run(tmp_path / "open", arms=("attention", "grassmann"), seeds=(0,), gate=None)
    own, published, ungated = (claims_of_study(tmp_path / name, "q")[0] for name in ("own", "published", "open"))
    assert own.figure.startswith("target of our own reached: attention has ")
    assert published.figure.startswith("parity reached: attention has ")
    assert (ungated.status, ungated.figure) == ("not run", "no gate")
    # measured before targets named their sources: the record says parity, the claim does not
    path = tmp_path / "own/parity.json"
    old = {key: value for key, value in read_json(path).items() if key != "sources"}
    write_json(path, old | {"sentence": old["sentence"].replace("target of our own", "parity")})
    assert claims_of_study(tmp_path / "own", "q")[0] == own
