# The algebra study: the k-blade article's protocol. Phase 1: one job a task and arm, all its tables and seeds at once.

from geomix.studies.algebra.settings import INSPECTED_ARMS, INSPECTED_TASKS, arms_of, check_algebra, job_settings

ALGEBRA = config["algebra"]
try:
    check_algebra(ALGEBRA)
except UserError as error:
    raise WorkflowError(str(error)) from None

ALG_RUN = f"results/{ALGEBRA['run']}"
ALG_LOGS = f"logs/{ALGEBRA['run']}"
ALG_PHASE1 = ALGEBRA["representation"]


localrules:
    algebra,
    algebra_representation,


# what is left for phase 4: the weights of some arms on some tasks
ruleorder: algebra_job_with_weights > algebra_job


rule algebra_job:
    output:
        f"{ALG_RUN}/representation/{{task}}/{{arm}}.json",
    log:
        f"{ALG_LOGS}/representation/{{task}}/{{arm}}.log",
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


rule algebra:
    input:
        rules.algebra_representation.output,
