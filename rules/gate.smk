# Gated arms run only after the baseline has reached its target. Measuring always succeeds and keeps its
# record; passing the gate is a rule of its own, since a failing rule loses its outputs.

import json

GATE = config["gate"]


def anchor_scores(anchor):
    """Scores of the sets on which an anchor has a target."""
    return [
        f"{RUN}/{anchor['track']}/{anchor['arm']}/seed{seed}/score/{target['set']}.json"
        for seed in anchor["seeds"]
        for target in anchor["targets"]
    ]


if GATE and GATE["fallback"]:

    localrules:
        measure_anchor,

    # a checkpoint, since only a miss makes the fallback train
    checkpoint measure_anchor:
        input:
            anchor_scores(GATE),
        output:
            f"{RUN}/anchor.json",
        log:
            f"{LOGS}/measure_anchor.log",
        retries: 0
        params:
            gate=stages.gate(config),
            run=RUN,
        script:
            "../workflow_scripts/measure_anchor.py"


def fallback_scores(wildcards):
    """Scores of the fallback, when the gate's own arm missed its target; what measured that."""
    if not GATE["fallback"]:
        return []
    anchor = checkpoints.measure_anchor.get().output[0]
    with open(anchor) as file:
        passed = json.load(file)["passed"]
    return [anchor] if passed else [anchor, *anchor_scores(GATE["fallback"])]


if GATE:

    localrules:
        measure_parity,
        parity_gate,

    rule measure_parity:
        input:
            anchor_scores(GATE),
            fallback_scores,
        output:
            f"{RUN}/parity.json",
        log:
            f"{LOGS}/measure_parity.log",
        retries: 0
        params:
            gate=stages.gate(config),
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
