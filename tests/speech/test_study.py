"""What a speech study is, written down before anything is trained."""

from geomix.files import read_json
from geomix.speech.study import describe_study
from tests.conftest import ROOT

AN4 = ROOT / "results/published/an4"


def test_a_published_study_is_described_as_it_was(tmp_path):
    published = read_json(AN4 / "study.json")
    config = {key: value for key, value in published.items() if key not in ("sizes", "vocabulary")}
    tokens = AN4 / "own/attention/seed0/tokens.txt"
    describe_study(config, tokens, tmp_path / "study.json")
    assert read_json(tmp_path / "study.json") == published
    manifests = {"test": "data/an4/manifest/test.tsv"}
    describe_study(config | {"gate": None}, tokens, tmp_path / "study.json", manifests)
    assert read_json(tmp_path / "study.json") == published | {"gate": None, "manifests": manifests}
