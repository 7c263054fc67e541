# The algebra study: the k-blade article's protocol. Phase 1: one job a task and arm, all its tables and seeds at once.

from geomix.settings.algebra import INSPECTED_ARMS, INSPECTED_TASKS
from geomix.settings.algebra_jobs import (
    TASKS,
    arms_of,
    job_settings,
)
from geomix.settings.algebra_truncation import cell_settings, cells
from geomix.settings.trainings import language_training_settings

ALGEBRA = config["algebra"]
ALG_RUN = f"results/{ALGEBRA['run']}"
ALG_LOGS = f"logs/{ALGEBRA['run']}"
ALG_PHASE1 = ALGEBRA["representation"]


localrules:
    algebra,
    algebra_representation,
    algebra_truncation,
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


# Truncation: one job a task, dimension and number of kept grades, all its tables and seeds at once.
ALG_TRUNCATION = ALGEBRA["truncation"]


rule algebra_truncation_job:
    output:
        f"{ALG_RUN}/truncation/{{cell}}.json",
    log:
        f"{ALG_LOGS}/truncation/{{cell}}.log",
    wildcard_constraints:
        cell="|".join(cell.name for cell in cells(ALG_TRUNCATION)),
    threads: 1
    params:
        settings=lambda wildcards: cell_settings(ALG_TRUNCATION, wildcards.cell),
    script:
        "../workflow_scripts/algebra_truncation.py"


rule algebra_truncation:
    input:
        [f"{ALG_RUN}/truncation/{cell.name}.json" for cell in cells(ALG_TRUNCATION)],
    output:
        markdown=f"{ALG_RUN}/truncation.md",
        csv=f"{ALG_RUN}/truncation.csv",
        verdicts=f"{ALG_RUN}/truncation.json",
        plots=expand(f"{ALG_RUN}/figures/truncation.{{form}}", form=["svg", "png"]),
    log:
        f"{ALG_LOGS}/truncation/report.log",
    params:
        settings=ALG_TRUNCATION,
    script:
        "../workflow_scripts/algebra_truncation.py"


# Phases 2 and 3 are studies like any other (rules/studies.smk, rules/train.smk); what a step of each arm costs, and the phase's
# page with its protocol, are theirs alone.
ALG_STUDIES = {
    phase: STUDIES[f"{ALGEBRA['run']}/{phase}"]
    for phase in ("components", "architectures", "speech")
    if f"{ALGEBRA['run']}/{phase}" in STUDIES
}


# a Transformer of two blocks of width 64 leaves a GPU idle: the cluster's profile asks for one for train_language alone
use rule train_language as algebra_train with:
    wildcard_constraints:
        study="|".join(re.escape(study.name) for study in ALG_STUDIES.values() if study.kind == "language") or "(?!)",


ruleorder: algebra_train > train_language


for phase, study in ALG_STUDIES.items():

    rule:
        name:
            f"algebra_costs_{phase}"
        input:
            **(training_data() if study.kind == "speech" else {"text": text_files(study.config["corpus"])}),
        output:
            f"{study.folder}/costs.json",
        log:
            f"{study.logs}/costs.log",
        threads: 1
        params:
            settings=[study.training(arm, seed, track) for track, arm, seed in study.trainings],
        script:
            "../workflow_scripts/algebra_costs.py"

    rule:
        name:
            f"algebra_page_{phase}"
        input:
            **reported(study),
            costs=f"{study.folder}/costs.json",
        output:
            markdown=f"{ALG_RUN}/{phase}.md",
            summary=f"{ALG_RUN}/{phase}.json",
            plots=expand(f"{ALG_RUN}/figures/{phase}.{{form}}", form=["svg", "png"]),
        log:
            f"{study.logs}/page.log",
        localrule: True
        script:
            "../workflow_scripts/algebra_page.py"


if "speech" in ALG_STUDIES:

    localrules:
        algebra_speech,

    rule algebra_speech:
        input:
            study_files(ALG_STUDIES["speech"]),
            f"{ALG_RUN}/speech.md",


# Multivector layers: inserted into phase 2's trained baselines, and their nonlinearities on tasks of phase 1.
ALG_LAYERS = ALGEBRA["layers"]


def algebra_weights(phase, arms):
    """Weights of those of some arms that a phase trains, a file each seed; speech has them after averaging."""
    study = ALG_STUDIES.get(phase)
    weights = study.files("model.safetensors") if study else []
    return [where for where in weights if where.split("/")[-3] in arms]


if algebra_weights("components", ["scalar"]):

    rule algebra_adoption:
        input:
            weights=algebra_weights("components", ["scalar"]),
            text=text_files(ALG_STUDIES["components"].config["corpus"]),
        output:
            f"{ALG_RUN}/layers/adoption.json",
        log:
            f"{ALG_LOGS}/layers/adoption.log",
        threads: 1
        params:
            training=language_training_settings(ALG_STUDIES["components"].config, "scalar", 0)["training"],
            settings=ALG_LAYERS,
        script:
            "../workflow_scripts/algebra_layers.py"

    rule algebra_nonlinearities:
        output:
            f"{ALG_RUN}/layers/nonlinearities.json",
        log:
            f"{ALG_LOGS}/layers/nonlinearities.log",
        threads: 1
        params:
            settings=ALG_LAYERS,
        script:
            "../workflow_scripts/algebra_layers.py"

    rule algebra_layers:
        input:
            rules.algebra_adoption.output,
            rules.algebra_nonlinearities.output,
        output:
            markdown=f"{ALG_RUN}/layers.md",
            verdicts=f"{ALG_RUN}/layers.json",
            plots=expand(f"{ALG_RUN}/figures/layers.{{form}}", form=["svg", "png"]),
        log:
            f"{ALG_LOGS}/layers/report.log",
        localrule: True
        params:
            settings=ALG_LAYERS,
        script:
            "../workflow_scripts/algebra_layers.py"


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


# ... and, once they are trained, into those of phases 2 and 3 that have rotors or algebra-valued maps.
INSIDE = {
    "components": ["qkv", "qkv_shuffled", "positions", "rope"],
    "architectures": ["clifford", "shuffled"],
    "speech": ["clifford", "shuffled", "rotors"],
}
INSIDE_WEIGHTS = {phase: algebra_weights(phase, arms) for phase, arms in INSIDE.items()}


def inside_files(wildcards):
    """Weights of each phase, the text, and what the speech models are run on."""
    files = {phase: weights for phase, weights in INSIDE_WEIGHTS.items() if weights}
    files["text"] = text_files(ALG_STUDIES["components"].config["corpus"])
    return files | (training_data() if INSIDE_WEIGHTS["speech"] else {})


rule algebra_inside:
    input:
        unpack(inside_files),
    output:
        f"{ALG_RUN}/inside/models.json",
    log:
        f"{ALG_LOGS}/inside/models.log",
    threads: 1
    params:
        phases=[phase for phase, weights in INSIDE_WEIGHTS.items() if weights],
    script:
        "../workflow_scripts/algebra_inside.py"


rule algebra_inside_page:
    input:
        rules.algebra_inside.output,
    output:
        markdown=f"{ALG_RUN}/inside.md",
        verdicts=f"{ALG_RUN}/inside.json",
        plots=expand(f"{ALG_RUN}/figures/inside.{{form}}", form=["svg", "png"]),
    log:
        f"{ALG_LOGS}/inside/page.log",
    localrule: True
    script:
        "../workflow_scripts/algebra_inside.py"


rule algebra:
    input:
        rules.algebra_representation.output,
        rules.algebra_truncation.output,
        [study_files(study) for study in ALG_STUDIES.values()],
        [f"{ALG_RUN}/{phase}.md" for phase in ALG_STUDIES],
        rules.algebra_interpretability_report.output,
        f"{ALG_RUN}/layers.md" if algebra_weights("components", ["scalar"]) else [],
        rules.algebra_inside_page.output,
        f"{ALG_RUN}/page",
