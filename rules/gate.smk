# Gated arms run only after the baseline has reproduced a published number. Measuring always succeeds and keeps its
# record; passing the gate is a rule of its own, since a failing rule loses its outputs.

GATE = config["gate"]
ANCHORS = [GATE, *([GATE["fallback"]] if GATE["fallback"] else [])]


localrules:
    measure_parity,
    parity_gate,


def anchor_scores(wildcards):
    return [
        f"{RUN}/{anchor['track']}/{anchor['arm']}/seed{seed}/score/{target['set']}.json"
        for anchor in ANCHORS
        for seed in anchor["seeds"]
        for target in anchor["targets"]
    ]


# study.json holds the gate's targets too, and a changed one must be seen here: Snakemake does not look at the params of a
# job below an `ancient` input (the study of a training) whose maker runs again
rule measure_parity:
    input:
        scores=anchor_scores,
        study=f"{RUN}/study.json",
    output:
        f"{RUN}/parity.json",
    log:
        f"{LOGS}/measure_parity.log",
    retries: 0
    params:
        gate=GATE,
        run=RUN,
    script:
        "../workflow_scripts/measure_parity.py"


rule parity_gate:
    input:
        f"{RUN}/parity.json",
    output:
        touch(f"{RUN}/parity.passed"),
    log:
        f"{LOGS}/parity_gate.log",
    retries: 0
    script:
        "../workflow_scripts/parity_gate.py"
