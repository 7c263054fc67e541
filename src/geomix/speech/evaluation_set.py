"""An evaluation set that no study prepared: a manifest, a Kaldi folder or a folder of recordings, brought to manifest and features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geomix.errors import UserError
from geomix.files import write_text
from geomix.settings.speech import Corpus
from geomix.speech.corpora.folder import LISTINGS
from geomix.speech.corpora.preparation import prepare_split
from geomix.speech.features import write_features
from geomix.speech.manifest import AUDIO_SUFFIXES, Utterance, read_lines, read_manifest
from geomix.speech.scoring import read_reference

_SPLIT = "set"


@dataclass(frozen=True)
class Reference:
    """Texts (and speakers) of recordings whose folder has none: Kaldi `text` and `utt2spk`, or a manifest."""

    text: Path
    utt2spk: Path | None = None


@dataclass(frozen=True)
class EvaluationSet:
    """A prepared set: its name, utterances, the manifest they are from and the files of their features."""

    name: str
    manifest: Path
    features: list[Path]

    @property
    def utterances(self) -> list[Utterance]:
        """As the manifest has them."""
        return read_manifest(self.manifest)


def prepared_set(folder: Path) -> EvaluationSet:
    """A prepared set by its folder, such as data/demo/test-1a2b3c4d; `UserError` for a folder that is none."""
    manifests, features = sorted(folder.glob("manifest/*.tsv")), sorted(folder.glob("features/*.f[13]*"))
    if len(manifests) != 1 or not features:
        raise UserError(
            f"{folder}: no prepared set (manifest/NAME.tsv and features/): give a folder such as data/demo/test-1a2b3c4d"
        )
    return EvaluationSet(manifests[0].stem, manifests[0], features)


def open_set(
    path: Path,
    work: Path,
    *,
    reference: Reference | None = None,
    resample: bool = False,
    normaliser: str = "none",
    allow_pipes: bool = False,
) -> EvaluationSet:
    """The set at `path`, prepared in the folder `work` as a study would prepare it, unless it is prepared already.

    path : a prepared set's folder or its manifest; a manifest of one's own (.tsv with id, speaker, path and text); a
        Kaldi data folder; a folder in LibriSpeech's layout; with `reference`, any folder of recordings, named by their ids

    Raises
    ------
    UserError
        For a path that is none of these, and for bad recordings and transcripts, as in a study's preparation.
    """
    if path.is_dir() and (path / "manifest").is_dir():
        return prepared_set(path)
    if path.suffix == ".tsv" and path.is_file() and _is_prepared(path):
        if path.parent.name == "manifest" and (path.parent.parent / "features").is_dir():
            return prepared_set(path.parent.parent)
        return with_features(path.stem, path, read_manifest(path), work)
    kind, place, source = _form_of(path, work, reference)
    corpus = Corpus(
        name=path.stem,
        kind=kind,
        path=str(place),
        train=[source],
        dev=[source],
        test={_SPLIT: [source]},
        resample=resample,
        normaliser=normaliser,
        allow_pipes=allow_pipes,
    )
    # neither the counts published for a corpus of this name nor a study's bounds are this set's
    prepare_split({**corpus.model_dump(), "name": "new"}, _SPLIT, work)
    manifest = work / "manifest" / f"{_SPLIT}.tsv"
    return with_features(path.stem, manifest, read_manifest(manifest), work)


def _is_prepared(path: Path) -> bool:
    return read_lines(path, "give a set")[0].split("\t")[3:5] == ["samples", "speed"]


def _form_of(path: Path, work: Path, reference: Reference | None) -> tuple[str, Path, str]:
    """Kind of corpus, its folder, and the name of the split there."""
    if not path.exists():
        raise UserError(f"{path}: no such set: give a manifest, a Kaldi folder or a folder of recordings")
    path = path.absolute()
    if reference is not None:
        return "manifest", work, _write_table(path, work, reference)
    if path.suffix == ".tsv":
        return "manifest", path.parent, path.stem
    if (path / "wav.scp").is_file():
        return "kaldi", path.parent, path.name
    if next(path.glob(LISTINGS), None):
        return "folder", path.parent, path.name
    raise UserError(
        f"{path}: neither a manifest (.tsv) nor a folder with wav.scp or with */*/*.trans.txt: give --reference FILE with "
        "the texts of its recordings"
    )


def _write_table(folder: Path, work: Path, reference: Reference) -> str:
    """A manifest of one's own for the recordings of a folder, by the texts of their file names; its name in `work`."""
    audio: dict[str, Path] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES):
        if path.stem in audio:
            raise UserError(f"{path}: {audio[path.stem]} has the same name: make each name unique")
        audio[path.stem] = path
    texts, speakers = read_reference(reference.text, reference.utt2spk)
    for names, others, sentence in (
        (texts, audio, "{}: {} of its utterances have no recording in {} (first: {}): put them there"),
        (
            audio,
            texts,
            "{2}: {1} of its recordings have no text in {0} (first: {3}): add them, or remove the recordings",
        ),
    ):
        if lacking := sorted(names.keys() - others.keys()):
            raise UserError(sentence.format(reference.text, len(lacking), folder, lacking[0]))
    speakers = speakers or {i: i for i in texts}
    rows = ["id\tspeaker\tpath\ttext", *(f"{i}\t{speakers.get(i, i)}\t{audio[i]}\t{texts[i]}" for i in sorted(texts))]
    write_text(work / "reference.tsv", "\n".join(rows) + "\n")
    return "reference"


def with_features(name: str, manifest: Path, utterances: list[Utterance], work: Path) -> EvaluationSet:
    """A set with the features of its utterances, computed into `work`."""
    prefix = work / "features" / name
    write_features(utterances, prefix)
    return EvaluationSet(name, manifest, [Path(f"{prefix}.f32")])
