# The track espnet: its data folder, training and averaging by ESPnet itself, and ESPnet's own decoding, a second set of
# hypotheses that is scored too. Every other rule is the one that both tracks share.

# Kaldi folders of the splits; the shapes in them hang on the tokenizer, and so on the training set
ESPNET_UNITS = f"{KEYS['train']}-{UNITS}"
ESPNET_DATA = f"{SPLIT}/espnet/{ESPNET_UNITS}"
ESPNET_AUDIO = f"{FOLDERS['train']}/espnet/audio-sp{{factor}}"
ESPNET_FILES = ("wav.scp", "text", "utt2spk", "speech_shape", "text_shape")
ESPNET_FACTORS = [factor for factor in CORPUS["speed_factors"] if factor != 1.0]
ESPNET_STATS = f"{FOLDERS['train']}/espnet/{ESPNET_UNITS}/stats-{KEYS['dev']}/train/feats_stats.npz"
# ESPnet's own models among the arms, which our decoder does not know
ESPNET_ANCHORS = [arm for arm, definition in ARMS.items() if definition.get("architecture") == "e_branchformer"]


localrules:
    espnet_data,
    average_espnet,
    average_espnet_own_mixer,
    score_prefix_search,
    decode_anchor,


def espnet_files(*splits):
    """Files of the Kaldi folders of splits."""
    return [f"{FOLDERS[split]}/espnet/{ESPNET_UNITS}/{name}" for split in splits for name in ESPNET_FILES]


def espnet_training_data(wildcards=None):
    """All prepared files that a training by ESPnet reads."""
    return dict(
        train_summary=f"{FOLDERS['train']}/split.json",
        dev_summary=f"{FOLDERS['dev']}/split.json",
        train_scp=f"{FOLDERS['train']}/espnet/{ESPNET_UNITS}/wav.scp",
        dev_scp=f"{FOLDERS['dev']}/espnet/{ESPNET_UNITS}/wav.scp",
        files=espnet_files("train", "dev"),
        tokens=f"{TOKENIZER}/tokens.txt",
        tokenizer=f"{TOKENIZER}/tokenizer.model",
    )


rule espnet_audio:
    input:
        manifest=MANIFESTS["train"],
        summary=f"{FOLDERS['train']}/split.json",
    output:
        directory(ESPNET_AUDIO),
    log:
        f"{LOGS}/espnet/audio-sp{{factor}}.log",
    threads: 2
    script:
        "../workflow_scripts/espnet_audio.py"


def espnet_copies(wildcards):
    """Audio at other speeds, of which the training set alone has some."""
    return expand(ESPNET_AUDIO, factor=ESPNET_FACTORS) if wildcards.split == "train" else []


rule espnet_data:
    input:
        manifest=MANIFEST,
        audio=espnet_copies,
        tokenizer=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
    output:
        expand(f"{ESPNET_DATA}/{{file}}", file=ESPNET_FILES, allow_missing=True),
    log:
        f"{LOGS}/espnet/data-{{split}}-{{key}}.log",
    retries: 0
    params:
        factors=lambda wildcards: ESPNET_FACTORS if wildcards.split == "train" else [],
    script:
        "../workflow_scripts/espnet_data.py"


rule espnet_stats:
    input:
        unpack(espnet_training_data),
    output:
        stats=ESPNET_STATS,
    log:
        f"{LOGS}/espnet/stats.log",
    resources:
        runtime=720,
    params:
        mels=config["features"]["mels"],
    script:
        "../workflow_scripts/espnet_stats.py"


rule train_espnet:
    input:
        unpack(espnet_training_data),
        stats=ESPNET_STATS,
        dev_features=features_of("dev"),
        gate=gate_of,
    output:
        record=f"{ARM}/record.json",
        log=f"{ARM}/log.jsonl",
        diagnostics=f"{ARM}/diagnostics.json",
        epochs=f"{ARM}/epochs.json",
    log:
        f"{ARM_LOGS}/train.log",
    wildcard_constraints:
        track="espnet",
    priority: first_seed_first
    threads: training_threads
    params:
        settings=training_param,
    script:
        "../workflow_scripts/espnet_train.py"


rule average_espnet:
    input:
        epochs=f"{ARM}/epochs.json",
        tokenizer=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
    output:
        model=f"{ARM}/model.safetensors",
        config=f"{ARM}/model.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
        tokens=f"{ARM}/tokens.txt",
        averaging=f"{ARM}/averaging.json",
        weights=f"{ARM}/espnet.pth",
        options=f"{ARM}/espnet.yaml",
    log:
        f"{ARM_LOGS}/average.log",
    wildcard_constraints:
        track="espnet",
    priority: first_seed_first
    retries: 0
    params:
        selection=lambda wildcards: stages.selection(STUDIES[wildcards.study].config),
    script:
        "../workflow_scripts/espnet_average.py"


use rule average_espnet as average_espnet_own_mixer with:
    output:
        model=f"{ARM}/model.safetensors",
        config=f"{ARM}/model.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
        tokens=f"{ARM}/tokens.txt",
        averaging=f"{ARM}/averaging.json",
        weights=f"{ARM}/espnet.pth",
        options=f"{ARM}/espnet.yaml",
        source=f"{ARM}/mixer_source.py",
    wildcard_constraints:
        track="espnet",
        arm="|".join(map(re.escape, OWN_MIXERS)) or "(?!)",


ruleorder: average_espnet_own_mixer > average_espnet


# ESPnet's inference, at beam 1 a prefix search, and argmax-collapse of the same model in ESPnet's own code
rule decode_espnet:
    input:
        source=lambda wildcards: f"{ARM}/mixer_source.py" if wildcards.arm in OWN_MIXERS else [],
        data=lambda wildcards: espnet_files(wildcards.set),
        stats=ESPNET_STATS,
        weights=f"{ARM}/espnet.pth",
        options=f"{ARM}/espnet.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
        tokens=f"{ARM}/tokens.txt",
    output:
        prefix=f"{ARM}/prefix_search/hyp/{{set}}/text",
        argmax=f"{ARM}/espnet_argmax/{{set}}/text",
    log:
        f"{ARM_LOGS}/decode_espnet-{{set}}.log",
    wildcard_constraints:
        track="espnet",
    priority: first_seed_first
    threads: training_threads
    script:
        "../workflow_scripts/espnet_decode.py"


use rule score as score_prefix_search with:
    input:
        hypotheses=f"{ARM}/prefix_search/hyp/{{set}}/text",
        manifest=lambda wildcards: MANIFESTS[wildcards.set],
    output:
        json=f"{ARM}/prefix_search/score/{{set}}.json",
        tsv=f"{ARM}/prefix_search/score/{{set}}.tsv",
    log:
        f"{ARM_LOGS}/score_prefix_search-{{set}}.log",
    wildcard_constraints:
        track="espnet",


# an anchor of ESPnet's own has no counterpart in our code: its hypotheses are those of ESPnet's argmax-collapse
rule decode_anchor:
    input:
        f"{ARM}/espnet_argmax/{{set}}/text",
    output:
        f"{ARM}/hyp/{{set}}/text",
    log:
        f"{ARM_LOGS}/decode_anchor-{{set}}.log",
    wildcard_constraints:
        track="espnet",
        arm="|".join(re.escape(arm) for arm in ESPNET_ANCHORS) or "(?!)",
    shell:
        "cp {input} {output} 2> {log}"


ruleorder: decode_anchor > decode


# both tracks against each other, without training
rule agreement:
    input:
        unpack(espnet_training_data),
        train_features=[features_of("train", factor) for factor in CORPUS["speed_factors"]],
        dev_features=features_of("dev"),
        normalisation=rules.normalisation.output[0],
        stats=ESPNET_STATS,
    output:
        f"{RUN}/agreement.json",
    log:
        f"{LOGS}/espnet/agreement.log",
    params:
        settings={arm: training_settings(config, arm, seeds_of(STUDY, "espnet")[0], "espnet") for arm in STUDY["arms"]},
    script:
        "../workflow_scripts/espnet_agreement.py"


def agreement_files():
    """What the report shows of the two tracks side by side; nothing for a study without the track espnet."""
    if "espnet" not in STUDY["tracks"]:
        return []
    second = [path for path in SPEECH.files("prefix_search/score/{set}.json") if path.startswith(f"{RUN}/espnet/")]
    return [f"{RUN}/agreement.json", *second]
