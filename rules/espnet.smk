# The track espnet: its data folder, training and averaging by ESPnet itself, and ESPnet's own decoding, a second set of
# hypotheses that is scored too. Every other rule is the one that both tracks share.

ESPNET_DATA = f"{DATA}/espnet/{TOKENIZER.rpartition('/')[2]}"
ESPNET_AUDIO = f"{DATA}/espnet/audio-sp{{factor}}"
ESPNET_FILES = ("wav.scp", "text", "utt2spk", "speech_shape", "text_shape")
# ESPnet's own models among the arms, which our decoder does not know
ESPNET_ANCHORS = [arm for arm, definition in ARMS.items() if definition.get("architecture") == "e_branchformer"]


localrules:
    espnet_data,
    average_espnet,
    score_prefix_search,
    decode_anchor,


rule espnet_audio:
    input:
        manifest=f"{DATA}/manifest/train.tsv",
    output:
        directory(ESPNET_AUDIO),
    log:
        f"{LOGS}/espnet/audio-sp{{factor}}.log",
    threads: 2
    script:
        "../workflow_scripts/espnet_audio.py"


rule espnet_data:
    input:
        manifests=expand(f"{DATA}/manifest/{{split}}.tsv", split=SPLITS),
        audio=expand(ESPNET_AUDIO, factor=[factor for factor in CORPUS["speed_factors"] if factor != 1.0]),
        tokenizer=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
    output:
        expand(f"{ESPNET_DATA}/{{split}}/{{file}}", split=SPLITS, file=ESPNET_FILES),
    log:
        f"{LOGS}/espnet/data.log",
    retries: 0
    params:
        folder=ESPNET_DATA,
        factors=[factor for factor in CORPUS["speed_factors"] if factor != 1.0],
    script:
        "../workflow_scripts/espnet_data.py"


rule espnet_stats:
    input:
        rules.espnet_data.output,
        tokens=f"{TOKENIZER}/tokens.txt",
        corpus=f"{DATA}/corpus.json",
    output:
        f"{ESPNET_DATA}/stats/train/feats_stats.npz",
    log:
        f"{LOGS}/espnet/stats.log",
    resources:
        runtime=720,
    params:
        folder=ESPNET_DATA,
        mels=config["features"]["mels"],
    script:
        "../workflow_scripts/espnet_stats.py"


rule train_espnet:
    input:
        rules.espnet_data.output,
        stats=rules.espnet_stats.output,
        tokens=f"{TOKENIZER}/tokens.txt",
        corpus=f"{DATA}/corpus.json",
        dev_features=f"{DATA}/features/dev-sp1.0.{FEATURES}",
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
        track="espnet",
    priority: first_seed_first
    threads: TRAINING["threads"]
    params:
        folder=ESPNET_DATA,
    script:
        "../workflow_scripts/espnet_train.py"


rule average_espnet:
    input:
        epochs=f"{ARM}/epochs.json",
        record=f"{ARM}/record.json",
        tokenizer=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
        corpus=f"{DATA}/corpus.json",
    output:
        model=f"{ARM}/model.safetensors",
        config=f"{ARM}/model.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
        tokens=f"{ARM}/tokens.txt",
        averaging=f"{ARM}/averaging.json",
        weights=f"{ARM}/espnet.pth",
        options=f"{ARM}/espnet.yaml",
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/average.log",
    wildcard_constraints:
        track="espnet",
    priority: first_seed_first
    retries: 0
    params:
        folder=ESPNET_DATA,
    script:
        "../workflow_scripts/espnet_average.py"


# ESPnet's inference, at beam 1 a prefix search, and argmax-collapse of the same model in ESPnet's own code
rule decode_espnet:
    input:
        rules.espnet_data.output,
        stats=rules.espnet_stats.output,
        weights=f"{ARM}/espnet.pth",
        options=f"{ARM}/espnet.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
    output:
        prefix=expand(f"{ARM}/prefix_search/hyp/{{set}}/text", set=EVALUATION_SETS, allow_missing=True),
        argmax=expand(f"{ARM}/espnet_argmax/{{set}}/text", set=EVALUATION_SETS, allow_missing=True),
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/decode_espnet.log",
    wildcard_constraints:
        track="espnet",
    priority: first_seed_first
    threads: TRAINING["threads"]
    params:
        folder=ESPNET_DATA,
        sets=EVALUATION_SETS,
    script:
        "../workflow_scripts/espnet_decode.py"


use rule score as score_prefix_search with:
    input:
        hypotheses=expand(f"{ARM}/prefix_search/hyp/{{set}}/text", set=EVALUATION_SETS, allow_missing=True),
        manifests=expand(f"{DATA}/manifest/{{set}}.tsv", set=EVALUATION_SETS),
    output:
        json=expand(f"{ARM}/prefix_search/score/{{set}}.json", set=EVALUATION_SETS, allow_missing=True),
        tsv=expand(f"{ARM}/prefix_search/score/{{set}}.tsv", set=EVALUATION_SETS, allow_missing=True),
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/score_prefix_search.log",
    wildcard_constraints:
        track="espnet",


# an anchor of ESPnet's own has no counterpart in our code: its hypotheses are those of ESPnet's argmax-collapse
rule decode_anchor:
    input:
        f"{ARM}/espnet_argmax/{{set}}/text",
    output:
        f"{ARM}/hyp/{{set}}/text",
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/decode_anchor-{{set}}.log",
    wildcard_constraints:
        track="espnet",
        arm="|".join(re.escape(arm) for arm in ESPNET_ANCHORS) or "(?!)",
    shell:
        "cp {input} {output} 2> {log}"


ruleorder: decode_anchor > decode


# both tracks against each other, without training
rule agreement:
    input:
        unpack(training_data),
        rules.espnet_data.output,
        stats=rules.espnet_stats.output,
    output:
        f"{RUN}/agreement.json",
    log:
        f"{LOGS}/espnet/agreement.log",
    params:
        folder=ESPNET_DATA,
        settings={arm: training_settings(config, arm, seeds_of(STUDY, "espnet")[0], "espnet") for arm in STUDY["arms"]},
    script:
        "../workflow_scripts/espnet_agreement.py"


def agreement_files(wildcards):
    """What the report shows of the two tracks side by side; nothing for a study without the track espnet."""
    if "espnet" not in STUDY["tracks"]:
        return []
    second = f"{RUN}/espnet/{{arm}}/seed{{seed}}/prefix_search/score/{{set}}.json"
    seeds = seeds_of(STUDY, "espnet")
    return [rules.agreement.output[0], *expand(second, arm=STUDY["arms"], seed=seeds, set=EVALUATION_SETS)]
