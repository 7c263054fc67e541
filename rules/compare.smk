# Differences between arms with their intervals over speakers and seeds.


localrules:
    compare,


rule compare:
    input:
        scores=of_study(expand(f"{ARM}/score/{{set}}.tsv", set=EVALUATION_SETS, allow_missing=True)),
        study=f"{RUN}/study.json",
    output:
        f"{RUN}/comparisons.json",
    log:
        f"{LOGS}/compare.log",
    retries: 0
    script:
        "../workflow_scripts/compare.py"
