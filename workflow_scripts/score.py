"""Rule score: WER and CER of one evaluation set of one arm, seed and track."""

from geomix.errors import exit_with_sentence
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import read_text, score_texts, write_score

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        utterances = read_manifest(files.manifest)
        score = score_texts(
            {utterance.id: utterance.text for utterance in utterances},
            read_text(files.hypotheses),
            {utterance.id: utterance.speaker for utterance in utterances},
            set=snakemake.wildcards.set,
            **dict(snakemake.params.items()),
            reference_name=files.manifest,
            hypothesis_name=files.hypotheses,
        )
        write_score(score, snakemake.output.json, snakemake.output.tsv)
