# Differences between arms with their intervals over speakers and seeds.


localrules:
    compare,


rule compare:
    input:
        scores=of_study(f"{ARM}/score/{{set}}.tsv"),
        study=f"{RUN}/study.json",
    output:
        f"{RUN}/comparisons.json",
    log:
        f"{LOGS}/compare.log",
    retries: 0
    params:
        comparison=stages.comparison(config),
    script:
        "../workflow_scripts/compare.py"
