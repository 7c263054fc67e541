# The mean of the best epochs' weights: one model that loads with one call.


localrules:
    average,
    average_own_mixer,


rule average:
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
    log:
        f"{ARM_LOGS}/average.log",
    wildcard_constraints:
        track="own",
    priority: first_seed_first
    retries: 0
    params:
        selection=lambda wildcards: stages.selection(STUDIES[wildcards.study].config),
    script:
        "../workflow_scripts/average.py"


# arms whose mixer is a file of the user's own: its source goes beside the model, which loads it from there
OWN_MIXERS = [arm for arm, definition in ARMS.items() if ":" in definition.get("mixer", "")]


use rule average as average_own_mixer with:
    output:
        model=f"{ARM}/model.safetensors",
        config=f"{ARM}/model.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
        tokens=f"{ARM}/tokens.txt",
        averaging=f"{ARM}/averaging.json",
        source=f"{ARM}/mixer_source.py",
    wildcard_constraints:
        track="own",
        arm="|".join(map(re.escape, OWN_MIXERS)) or "(?!)",


ruleorder: average_own_mixer > average
