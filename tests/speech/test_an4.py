"""AN4's public archive, in small, becomes the folder form that the configuration reads."""

import tarfile

import numpy as np
import pytest
import soundfile

from geomix.cli import main
from geomix.errors import UserError
from geomix.speech.corpora.an4 import convert
from geomix.speech.corpora.faults import Faults
from geomix.speech.corpora.folder import read_folder
from tests.speech.corpus_builders import tone

TRANSCRIPTIONS = {
    "train": "<s> YES </s> (an251-fash-b)\n<s> U M N Y H SIX </s> (an255-fash-b)\n<s> GO </s> (cen1-mblb-b)\n",
    "test": "RUBOUT G M E F THREE NINE (an406-fcaw-b)\n",
}


@pytest.fixture
def archive(tmp_path):
    """A tar archive in the layout of an4_sphere.tar.gz."""
    root = tmp_path / "unpacked/an4"
    (root / "etc").mkdir(parents=True)
    for split, text in TRANSCRIPTIONS.items():
        (root / f"etc/an4_{split}.transcription").write_text(text)
        for number, line in enumerate(text.splitlines()):
            name = line[line.index("(") + 1 : -1]
            folder = root / "wav" / {"train": "an4_clstk", "test": "an4test_clstk"}[split] / name.split("-")[1]
            folder.mkdir(parents=True, exist_ok=True)
            soundfile.write(folder / f"{name}.sph", tone(0.5, 300 + 100 * number), 16_000, format="NIST")
    with tarfile.open(tmp_path / "an4_sphere.tar.gz", "w:gz") as tar:
        tar.add(root, "an4")
    return tmp_path / "an4_sphere.tar.gz"


def test_the_archive_becomes_the_folder_form(archive, tmp_path, capsys):
    main(["an4", str(archive), str(tmp_path / "an4")])
    assert "3 utterances to train and 1 utterances to test; the published corpus" in capsys.readouterr().out
    train = read_folder(tmp_path / "an4/train", Faults())
    assert [(r.id, r.speaker, r.text) for r in train] == [
        ("fash-1-0000", "fash", "YES"),
        ("fash-1-0001", "fash", "U M N Y H SIX"),
        ("mblb-1-0000", "mblb", "GO"),
    ]
    (test,) = read_folder(tmp_path / "an4/test", Faults())
    assert test.text == "RUBOUT G M E F THREE NINE"
    samples, rate = soundfile.read(train[1].path, dtype="int16")
    assert rate == 16_000 and np.array_equal(samples, tone(0.5, 400))


def test_another_archive_and_a_full_folder_are_refused(archive, tmp_path):
    with pytest.raises(UserError, match="no such file: download it from http://www.speech.cs.cmu.edu"):
        convert(tmp_path / "none.tar.gz", tmp_path / "an4")
    (tmp_path / "unpacked/an4/etc/an4_test.transcription").write_text("no id\n")
    with pytest.raises(UserError, match="line 1 is 'no id'"):
        convert(tmp_path / "unpacked", tmp_path / "an4")
    assert not (tmp_path / "an4").exists()
    with pytest.raises(UserError, match="is there already"):
        convert(archive, tmp_path / "unpacked")
