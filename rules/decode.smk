# Greedy CTC decoding of one evaluation set with the averaged model.


rule decode:
    input:
        model=f"{ARM}/model.safetensors",
        config=f"{ARM}/model.yaml",
        source=lambda wildcards: f"{ARM}/mixer_source.py" if wildcards.arm in OWN_MIXERS else [],
        tokenizer=f"{ARM}/tokenizer.model",
        tokens=f"{ARM}/tokens.txt",
        manifest=lambda wildcards: MANIFESTS[wildcards.set],
        features=lambda wildcards: features_of(wildcards.set),
    output:
        f"{ARM}/hyp/{{set}}/text",
    log:
        f"{ARM_LOGS}/decode-{{set}}.log",
    priority: first_seed_first
    threads: training_threads
    script:
        "../workflow_scripts/decode.py"
