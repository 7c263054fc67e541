# One training: an arm, a seed, a track. It resumes from state/<hash>/ after any interruption, and a finished one is restored
# from there, whichever run asks.


localrules:
    describe_study,


def training_data(wildcards):
    """All prepared files that a training reads."""
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
    return f"{RUN}/parity.passed" if config["gate"] and ARMS[wildcards.arm]["gated"] else []


# what the study is: its arms with their exact sizes (an unmatched arm is refused here), contrasts, gate, reference rows
rule describe_study:
    input:
        tokens=f"{TOKENIZER}/tokens.txt",
    output:
        f"{RUN}/study.json",
    log:
        f"{LOGS}/describe_study.log",
    priority: 1
    retries: 0
    params:
        config=stages.report(config),
        manifests={name: MANIFESTS[name] for name in EVALUATION_SETS},
    script:
        "../workflow_scripts/describe_study.py"


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
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/train.log",
    wildcard_constraints:
        track="own",
    priority: first_seed_first
    threads: TRAINING["threads"]
    params:
        settings=lambda wildcards: stages.training(config, wildcards.arm, int(wildcards.seed), wildcards.track),
    script:
        "../workflow_scripts/train.py"
