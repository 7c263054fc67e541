# One training of a study: an arm, a seed and, in speech, a track. It resumes from state/<hash>/ after any interruption, and a
# finished one is restored from there, whichever run asks.


def training_data(wildcards=None):
    """All prepared files that a training of speech reads."""
    return dict(
        train_summary=f"{FOLDERS['train']}/split.json",
        dev_summary=f"{FOLDERS['dev']}/split.json",
        train_manifest=MANIFESTS["train"],
        train_features=[features_of("train", factor) for factor in CORPUS["speed_factors"]],
        dev_manifest=MANIFESTS["dev"],
        dev_features=features_of("dev"),
        normalisation=rules.normalisation.output[0],
        tokenizer=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
    )


# A plain input, without `ancient`, below which Snakemake skips what a person forces, changes or deletes. When the baseline
# runs again, gated arms are triggered with it; those whose settings and data are unchanged are restored from their state.
def gate_of(wildcards):
    """What a gated arm waits for."""
    study = STUDIES[wildcards.study]
    return f"{study.folder}/parity.passed" if study.gate and study.config["arms"][wildcards.arm]["gated"] else []


def training_param(wildcards):
    """Hash of all that decides the weights of a training beside its data."""
    return STUDIES[wildcards.study].training(wildcards.arm, int(wildcards.seed), wildcards.get("track", ""))


rule train:
    input:
        unpack(training_data),
        gate=gate_of,
    output:
        record=f"{ARM}/record.json",
        log=f"{ARM}/log.jsonl",
        diagnostics=f"{ARM}/diagnostics.json",
        epochs=f"{ARM}/epochs.json",
    log:
        f"{ARM_LOGS}/train.log",
    wildcard_constraints:
        track="own",
    priority: first_seed_first
    threads: training_threads
    params:
        settings=training_param,
    script:
        "../workflow_scripts/train.py"


# a language model is its one best epoch, whose weights the training leaves behind
LM_ARM = "results/{study}/{arm}/seed{seed}"


rule train_language:
    input:
        lambda wildcards: text_files(STUDIES[wildcards.study].config["corpus"]),
        gate=gate_of,
    output:
        record=f"{LM_ARM}/record.json",
        log=f"{LM_ARM}/log.jsonl",
        diagnostics=f"{LM_ARM}/diagnostics.json",
        weights=f"{LM_ARM}/model.safetensors",
        model=f"{LM_ARM}/model.yaml",
    log:
        "logs/{study}/{arm}/seed{seed}.log",
    wildcard_constraints:
        study=studies_of_kind("language"),
    priority: first_seed_first
    threads: training_threads
    params:
        settings=training_param,
    script:
        "../workflow_scripts/train.py"
