# The algebra study: the k-blade article's protocol. Phase 1: one job a task and arm, all its tables and seeds at once.

from geomix.settings.algebra import INSPECTED_ARMS, INSPECTED_TASKS
from geomix.settings.algebra_jobs import (
    TASKS,
    arms_of,
    job_settings,
    language_job_settings,
    speech_job_settings,
)

ALGEBRA = config["algebra"]
ALG_RUN = f"results/{ALGEBRA['run']}"
ALG_LOGS = f"logs/{ALGEBRA['run']}"
ALG_PHASE1 = ALGEBRA["representation"]


ALG_TEXT_FILES = text_files(stages.algebra_text(config))


localrules:
    algebra,
    algebra_representation,
    algebra_language_report,
    algebra_interpretability_report,


# what is left for phase 4: the weights of some arms on some tasks
ruleorder: algebra_job_with_weights > algebra_job


rule algebra_job:
    output:
        f"{ALG_RUN}/representation/{{task}}/{{arm}}.json",
    log:
        f"{ALG_LOGS}/representation/{{task}}/{{arm}}.log",
    wildcard_constraints:
        task="|".join(TASKS),
    threads: 1
    params:
        settings=lambda wildcards: job_settings(ALG_PHASE1, wildcards.task, wildcards.arm),
    script:
        "../workflow_scripts/algebra_job.py"


use rule algebra_job as algebra_job_with_weights with:
    output:
        f"{ALG_RUN}/representation/{{task}}/{{arm}}.json",
        f"{ALG_RUN}/representation/{{task}}/{{arm}}.safetensors",
    wildcard_constraints:
        task="|".join(INSPECTED_TASKS),
        arm="|".join(INSPECTED_ARMS),


rule algebra_representation:
    input:
        [
            f"{ALG_RUN}/representation/{task}/{arm}.json"
            for task in ALG_PHASE1["tasks"]
            for arm in arms_of(task, ALG_PHASE1["arms"])
        ],
    output:
        markdown=f"{ALG_RUN}/representation.md",
        csv=f"{ALG_RUN}/representation.csv",
        verdicts=f"{ALG_RUN}/representation.json",
        plots=expand(f"{ALG_RUN}/figures/representation.{{form}}", form=["svg", "png"]),
    log:
        f"{ALG_LOGS}/representation/report.log",
    params:
        settings=ALG_PHASE1,
    script:
        "../workflow_scripts/algebra_representation.py"


# Phases 2 and 3 share a small text and the language study's model; one job an arm, its seeds one after the other.
rule algebra_language:
    input:
        ALG_TEXT_FILES,
    output:
        f"{ALG_RUN}/{{phase}}/{{arm}}.json",
    log:
        f"{ALG_LOGS}/{{phase}}/{{arm}}.log",
    wildcard_constraints:
        phase="components|architectures",
    threads: 1
    params:
        settings=lambda wildcards: language_job_settings(ALGEBRA, wildcards.phase, wildcards.arm),
    script:
        "../workflow_scripts/algebra_language.py"


rule algebra_language_report:
    input:
        lambda wildcards: [f"{ALG_RUN}/{wildcards.phase}/{arm}.json" for arm in ALGEBRA[wildcards.phase]["arms"]],
    output:
        markdown=f"{ALG_RUN}/{{phase}}.md",
        comparisons=f"{ALG_RUN}/{{phase}}.json",
        plots=[f"{ALG_RUN}/figures/{{phase}}.svg", f"{ALG_RUN}/figures/{{phase}}.png"],
    log:
        f"{ALG_LOGS}/{{phase}}/report.log",
    wildcard_constraints:
        phase="components|architectures",
    params:
        settings=lambda wildcards: ALGEBRA[wildcards.phase],
    script:
        "../workflow_scripts/algebra_language_report.py"


# Phase 3 on speech, where the configuration asks for it: the Conformer of the speech study on its corpus, few epochs.
ALG_SPEECH = ALGEBRA["speech"]

if ALG_SPEECH:

    localrules:
        algebra_speech,
        algebra_speech_report,

    rule algebra_speech_arm:
        input:
            unpack(training_data),
            manifests=[MANIFESTS[name] for name in EVALUATION_SETS],
            features=[features_of(name) for name in EVALUATION_SETS],
        output:
            f"{ALG_RUN}/speech/{{arm}}.json",
        log:
            f"{ALG_LOGS}/speech/{{arm}}.log",
        threads: 1
        params:
            settings=speech_job_settings(config),
            seeds=ALG_SPEECH["seeds"],
            sets=EVALUATION_SETS,
        script:
            "../workflow_scripts/algebra_speech.py"

    rule algebra_speech_report:
        input:
            [f"{ALG_RUN}/speech/{arm}.json" for arm in ALG_SPEECH["arms"]],
        output:
            markdown=f"{ALG_RUN}/speech.md",
            summary=f"{ALG_RUN}/speech.json",
            plots=expand(f"{ALG_RUN}/figures/speech.{{form}}", form=["svg", "png"]),
        log:
            f"{ALG_LOGS}/speech/report.log",
        params:
            arms=ALG_SPEECH["arms"],
        script:
            "../workflow_scripts/algebra_speech_report.py"

    rule algebra_speech:
        input:
            rules.algebra_speech_report.output,


# Phase 4 looks into models of phase 1.
rule algebra_interpretability:
    input:
        expand(f"{ALG_RUN}/representation/{{task}}/{{arm}}.safetensors", task=INSPECTED_TASKS, arm=INSPECTED_ARMS),
    output:
        f"{ALG_RUN}/interpretability/tests.json",
    log:
        f"{ALG_LOGS}/interpretability.log",
    params:
        settings={key: ALG_PHASE1[key] for key in ("seeds", "tables")},
    script:
        "../workflow_scripts/algebra_interpretability.py"


rule algebra_interpretability_report:
    input:
        rules.algebra_interpretability.output,
    output:
        markdown=f"{ALG_RUN}/interpretability.md",
        verdicts=f"{ALG_RUN}/interpretability.json",
        plots=expand(f"{ALG_RUN}/figures/interpretability.{{form}}", form=["svg", "png"]),
    log:
        f"{ALG_LOGS}/interpretability-report.log",
    script:
        "../workflow_scripts/algebra_interpretability_report.py"


rule algebra:
    input:
        rules.algebra_representation.output,
        [f"{ALG_RUN}/{phase}.md" for phase in ("components", "architectures")],
        rules.algebra_interpretability_report.output,
        rules.algebra_speech_report.output if ALG_SPEECH else [],
        f"{ALG_RUN}/page",
