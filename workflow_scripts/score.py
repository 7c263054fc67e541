"""Rule score: WER and CER of every evaluation set of one arm, seed and track."""

from geomix.errors import exit_with_sentence
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import read_text, score_texts, write_score

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        for name, manifest, hypotheses, json_path, tsv_path in zip(
            snakemake.params.sets,
            snakemake.input.manifests,
            snakemake.input.hypotheses,
            snakemake.output.json,
            snakemake.output.tsv,
            strict=True,
        ):
            utterances = read_manifest(manifest)
            score = score_texts(
                {utterance.id: utterance.text for utterance in utterances},
                read_text(hypotheses),
                {utterance.id: utterance.speaker for utterance in utterances},
                set=name,
                reference_name=manifest,
                hypothesis_name=hypotheses,
            )
            write_score(score, json_path, tsv_path)
