# Word and character error rates: one scorer for all tracks.


localrules:
    score,


rule score:
    input:
        hypotheses=f"{ARM}/hyp/{{set}}/text",
        manifest=lambda wildcards: MANIFESTS[wildcards.set],
    output:
        json=f"{ARM}/score/{{set}}.json",
        tsv=f"{ARM}/score/{{set}}.tsv",
    log:
        f"{ARM_LOGS}/score-{{set}}.log",
    priority: first_seed_first
    retries: 0
    params:
        **stages.scoring(config),
    script:
        "../workflow_scripts/score.py"
