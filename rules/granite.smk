# Published Granite Speech checkpoints as reference rows: decode every evaluation set with the whole model and with the encoder's
# own CTC head, and score both with the shared scorer. `granite.checkpoints` names local folders; nothing is downloaded.

import re

from geomix.settings import granite_rows

GRANITE = config["granite"]
GRANITE_ARMS = {row: {"checkpoint": checkpoint, "head": head} for row, checkpoint, head in granite_rows(config)}
GRANITE_ARM = f"{RUN}/granite/{{reference}}/seed0"


def granite_options(wildcards):
    """Decoding options of a row: those of its head, over which the checkpoint's own are laid."""
    arm = GRANITE_ARMS[wildcards.reference]
    return {**GRANITE[arm["head"]], **GRANITE["checkpoints"][arm["checkpoint"]].get(arm["head"], {})}


localrules:
    granite,
    granite_score,
    granite_table,


rule granite:
    input:
        f"{RUN}/granite/tables.md",


def _granite_arms(head):
    names = [name for name, arm in GRANITE_ARMS.items() if arm["head"] == head]
    return "|".join(re.escape(name) for name in names) or "(?!)"


rule granite_decode:
    input:
        manifests=[MANIFESTS[name] for name in EVALUATION_SETS],
    output:
        texts=expand(f"{GRANITE_ARM}/hyp/{{set}}/text", set=EVALUATION_SETS, allow_missing=True),
        record=f"{GRANITE_ARM}/record.json",
    log:
        f"{LOGS}/granite/{{reference}}/decode.log",
    wildcard_constraints:
        reference=_granite_arms("decode"),
    threads: GRANITE["threads"]
    resources:
        mem_mb=24000,
        runtime=720,
    params:
        arm=lambda wildcards: GRANITE_ARMS[wildcards.reference],
        checkpoint=lambda wildcards: GRANITE["checkpoints"][GRANITE_ARMS[wildcards.reference]["checkpoint"]]["path"],
        options=granite_options,
        sets=EVALUATION_SETS,
    script:
        "../workflow_scripts/granite_decode.py"


use rule granite_decode as granite_ctc with:
    log:
        f"{LOGS}/granite/{{reference}}/ctc.log",
    wildcard_constraints:
        reference=_granite_arms("ctc"),
    resources:
        mem_mb=8000,
        runtime=240,


rule granite_score:
    input:
        hypotheses=f"{GRANITE_ARM}/hyp/{{set}}/text",
        manifest=lambda wildcards: MANIFESTS[wildcards.set],
    output:
        json=f"{GRANITE_ARM}/score/{{set}}.json",
        tsv=f"{GRANITE_ARM}/score/{{set}}.tsv",
    log:
        f"{LOGS}/granite/{{reference}}/score-{{set}}.log",
    wildcard_constraints:
        reference="|".join(re.escape(name) for name in GRANITE_ARMS) or "(?!)",
    retries: 0
    params:
        normaliser=GRANITE["normaliser"],
    script:
        "../workflow_scripts/score.py"


rule granite_table:
    input:
        records=expand(f"{GRANITE_ARM}/record.json", reference=GRANITE_ARMS),
        scores=expand(f"{GRANITE_ARM}/score/{{set}}.json", reference=GRANITE_ARMS, set=EVALUATION_SETS),
        tsv=expand(f"{GRANITE_ARM}/score/{{set}}.tsv", reference=GRANITE_ARMS, set=EVALUATION_SETS),
    output:
        csv=f"{RUN}/granite/tables.csv",
        markdown=f"{RUN}/granite/tables.md",
    log:
        f"{LOGS}/granite/table.log",
    params:
        arms=list(GRANITE_ARMS),
        sets=EVALUATION_SETS,
        comparison=config["comparison"],
        folder=f"{RUN}/granite",
    script:
        "../workflow_scripts/granite_table.py"
