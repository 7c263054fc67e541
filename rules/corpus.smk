# From recordings to manifests and features, once for all arms, seeds, tracks and runs on this corpus. Each split is a job
# and a folder of its own, so that a further test set touches nothing of train and dev.

# a generated corpus lies among the prepared data, in a folder named by what it is made with
GENERATED = stages.generated_settings(config)
if CORPUS["kind"] in stages.GENERATED:
    CORPUS["path"] = f"{DATA}/audio-{stages.digest(GENERATED)}"


localrules:
    download_subset,
    generate_corpus,
    prepare_split,
    check_corpus,


rule download_subset:
    output:
        touch(f"{CORPUS['path']}/{{subset}}.complete"),
    log:
        f"{LOGS}/download/{{subset}}.log",
    retries: 3
    params:
        folder=CORPUS["path"],
    script:
        "../workflow_scripts/download_subset.py"


rule generate_corpus:
    output:
        settings=f"{CORPUS['path']}/settings.json",
        recordings=[directory(f"{CORPUS['path']}/{split}") for split in ("train", "dev", "test")],
    log:
        f"{LOGS}/generate_corpus.log",
    retries: 0
    params:
        settings=GENERATED,
    script:
        "../workflow_scripts/generate_corpus.py"


def recordings(wildcards):
    """What must be there before a split is read: nothing, where the recordings are the user's own."""
    if CORPUS["kind"] in stages.GENERATED:
        return rules.generate_corpus.output.settings
    if CORPUS["download"]:
        return expand(
            f"{CORPUS['path']}/{{subset}}.complete", subset=stages.split_settings(config, wildcards.split)["read"]
        )
    return []


# audio holds what has to be cut out of longer recordings, converted, or written by commands
rule prepare_split:
    input:
        recordings,
    output:
        **({"audio": directory(f"{SPLIT}/audio")} if stages.keeps_audio(CORPUS) else {}),
        manifest=MANIFEST,
        sources=f"{SPLIT}/sources.tsv",
        summary=f"{SPLIT}/split.json",
    log:
        f"{LOGS}/prepare/{{split}}-{{key}}.log",
    retries: 0
    params:
        made_with=lambda wildcards: stages.preparation(config, wildcards.split),
    script:
        "../workflow_scripts/prepare_split.py"


# what no split can see alone: an utterance in train and in another split, counts that were stated
rule check_corpus:
    input:
        summaries=[f"{folder}/split.json" for folder in FOLDERS.values()],
        manifests=MANIFESTS.values(),
    output:
        f"{RUN}/corpus.json",
    log:
        f"{LOGS}/check_corpus.log",
    priority: 1
    retries: 0
    params:
        folders=FOLDERS,
        expected=CORPUS["expected"],
    script:
        "../workflow_scripts/check_corpus.py"


# the summary holds the hash of the audio: other recordings under the same names are computed anew
rule features:
    input:
        manifest=MANIFEST,
        summary=f"{SPLIT}/split.json",
    output:
        frames=f"{SPLIT}/{FEATURES}/{{split}}-sp{{factor}}.{FRAMES}",
        index=f"{SPLIT}/{FEATURES}/{{split}}-sp{{factor}}.index.tsv",
    log:
        f"{LOGS}/features/{{split}}-{{key}}-sp{{factor}}.log",
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=240,
    params:
        features=stages.features(config),
    script:
        "../workflow_scripts/features.py"


rule normalisation:
    input:
        [features_of("train", factor) for factor in CORPUS["speed_factors"]],
    output:
        f"{FOLDERS['train']}/{FEATURES}/normalisation.json",
    log:
        f"{LOGS}/normalisation.log",
    script:
        "../workflow_scripts/normalisation.py"
