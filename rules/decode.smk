# Greedy CTC decoding of every evaluation set with the averaged model.


rule decode:
    input:
        model=f"{ARM}/model.safetensors",
        config=f"{ARM}/model.yaml",
        tokenizer=f"{ARM}/tokenizer.model",
        manifests=expand(f"{DATA}/manifest/{{set}}.tsv", set=EVALUATION_SETS),
        features=expand(f"{DATA}/features/{{set}}-sp1.0.{FEATURES}", set=EVALUATION_SETS),
    output:
        expand(f"{ARM}/hyp/{{set}}/text", set=EVALUATION_SETS, allow_missing=True),
    log:
        f"{LOGS}/{{track}}/{{arm}}/seed{{seed}}/decode.log",
    priority: first_seed_first
    threads: TRAINING["threads"]
    script:
        "../workflow_scripts/decode.py"
