# The mean of the best epochs' weights: one model that loads with one call.


localrules:
    average,


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
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/average.log",
    wildcard_constraints:
        track="own",
    priority: first_seed_first
    retries: 0
    params:
        selection=stages.selection(config),
    script:
        "../workflow_scripts/average.py"
