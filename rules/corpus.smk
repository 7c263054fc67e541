# From recordings to manifests and features, once for all arms, seeds, tracks and runs on this corpus.

# $GEOMIX_DATA in a path stands for the folder of local data sets
os.environ.setdefault("GEOMIX_DATA", "../shared/data")
CORPUS = {**config["corpus"], "path": os.path.expandvars(config["corpus"].get("path") or "") or None}
LIMITS = ("speed_factors", "min_seconds", "max_seconds")
SPLITS = ["train", "dev", *EVALUATION_SETS]


localrules:
    download_subset,
    prepare_corpus,


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


def downloads(wildcards):
    if not CORPUS.get("download"):
        return []
    subsets = [name for key in ("train", "dev", "test") for name in CORPUS[key]]
    return expand(f"{CORPUS['path']}/{{subset}}.complete", subset=subsets)


rule prepare_corpus:
    input:
        downloads,
    output:
        manifests=expand(f"{DATA}/manifest/{{split}}.tsv", split=SPLITS),
        summary=f"{DATA}/corpus.json",
    log:
        f"{LOGS}/prepare_corpus.log",
    retries: 0
    params:
        corpus={key: value for key, value in CORPUS.items() if key not in ("download", *LIMITS)},
        limits={key: CORPUS[key] for key in LIMITS if key in CORPUS},
        folder=DATA,
    script:
        "../workflow_scripts/prepare_corpus.py"


rule features:
    input:
        manifest=f"{DATA}/manifest/{{split}}.tsv",
    output:
        frames=f"{DATA}/features/{{split}}-sp{{factor}}.{FEATURES}",
        index=f"{DATA}/features/{{split}}-sp{{factor}}.index.tsv",
    log:
        f"{LOGS}/features/{{split}}-sp{{factor}}.log",
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=240,
    params:
        features=config["features"],
    script:
        "../workflow_scripts/features.py"


rule normalisation:
    input:
        expand(f"{DATA}/features/train-sp{{factor}}.{FEATURES}", factor=CORPUS["speed_factors"]),
    output:
        f"{DATA}/features/normalisation.json",
    log:
        f"{LOGS}/normalisation.log",
    script:
        "../workflow_scripts/normalisation.py"
