# Word and character error rates: one scorer for all tracks.


localrules:
    score,


rule score:
    input:
        hypotheses=expand(f"{ARM}/hyp/{{set}}/text", set=EVALUATION_SETS, allow_missing=True),
        manifests=expand(f"{DATA}/manifest/{{set}}.tsv", set=EVALUATION_SETS),
    output:
        json=expand(f"{ARM}/score/{{set}}.json", set=EVALUATION_SETS, allow_missing=True),
        tsv=expand(f"{ARM}/score/{{set}}.tsv", set=EVALUATION_SETS, allow_missing=True),
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/score.log",
    priority: first_seed_first
    retries: 0
    params:
        sets=EVALUATION_SETS,
    script:
        "../workflow_scripts/score.py"
