"""What a speech study is, written down before anything is trained."""

from geomix.files import read_json
from geomix.studies.base import describe
from geomix.studies.speech import SPEECH
from tests.conftest import ROOT

AN4 = ROOT / "results/published/an4"


def test_a_published_study_is_described_as_it_was(tmp_path):
    published = read_json(AN4 / "study.json")
    config = {key: value for key, value in published.items() if key not in ("sizes", "vocabulary")}
    tokens = AN4 / "own/attention/seed0/tokens.txt"
    describe(SPEECH, config, {"tokens": tokens}, tmp_path / "study.json")
    assert read_json(tmp_path / "study.json") == published
    manifests = {"test": "data/an4/manifest/test.tsv"}
    files = {"tokens": tokens, "manifests": manifests}
    describe(SPEECH, config | {"gate": None}, files, tmp_path / "study.json")
    assert read_json(tmp_path / "study.json") == published | {"gate": None, "manifests": manifests}
