# One training: an arm, a seed, a track. It resumes from STATE after any interruption.

TRAINING = config["training"]


localrules:
    describe_study,
    settings,


def training_data(wildcards):
    """All prepared files that a training reads."""
    return dict(
        train_manifest=f"{DATA}/manifest/train.tsv",
        train_features=expand(f"{DATA}/features/train-sp{{factor}}.{FEATURES}", factor=CORPUS["speed_factors"]),
        dev_manifest=f"{DATA}/manifest/dev.tsv",
        dev_features=f"{DATA}/features/dev-sp1.0.{FEATURES}",
        normalisation=f"{DATA}/features/normalisation.json",
        tokenizer=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
        corpus=f"{DATA}/corpus.json",
    )


def gate_of(wildcards):
    """Gated arms wait for the gate; `ancient`, so that a re-run of attention does not re-train them."""
    return ancient(f"{RUN}/parity.passed") if ARMS[wildcards.arm].get("gated") else []


# All that decides the weights, in a file. Snakemake does not look at the params of a job below an `ancient` input whose
# maker runs again (it would skip a gated arm whose settings changed together with attention's), so the params that tell
# a changed setting are those of a rule that nothing stands above.
rule settings:
    output:
        f"{ARM}/settings.json",
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/settings.log",
    retries: 0
    params:
        settings=lambda wildcards: training_settings(config, wildcards.arm, int(wildcards.seed), wildcards.track),
    script:
        "../workflow_scripts/settings.py"


# what the study is: its arms with their exact sizes (an unmatched arm is refused here), contrasts, gate, reference rows
rule describe_study:
    input:
        tokens=f"{TOKENIZER}/tokens.txt",
    output:
        f"{RUN}/study.json",
    log:
        f"{LOGS}/describe_study.log",
    retries: 0
    params:
        config={
            key: config.get(key)
            for key in (
                "run",
                "corpus",
                "tokenizer",
                "features",
                "model",
                "arms",
                "study",
                "hypothesis",
                "comparison",
                "gate",
                "references",
            )
        },
    script:
        "../workflow_scripts/describe_study.py"


rule train:
    input:
        unpack(training_data),
        settings=f"{ARM}/settings.json",
        study=ancient(f"{RUN}/study.json"),
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
    script:
        "../workflow_scripts/train.py"
