"""Rules score, score_prefix_search and granite_score: WER and CER of the hypotheses of one evaluation set."""

from geomix.errors import exit_with_sentence
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import read_text, score_texts, write_score

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files, normaliser = snakemake.input, snakemake.params.get("normaliser")
        utterances = read_manifest(files.manifest)
        score = score_texts(
            {utterance.id: utterance.text for utterance in utterances},
            read_text(files.hypotheses),
            {utterance.id: utterance.speaker for utterance in utterances},
            set=snakemake.wildcards.set,
            normaliser=normaliser or "none",
            reference_name=files.manifest,
            hypothesis_name=files.hypotheses,
        )
        write_score(score, snakemake.output.json, snakemake.output.tsv, normaliser=normaliser)
