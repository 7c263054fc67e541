# One SentencePiece tokenizer for all arms, seeds and tracks, trained on the training transcripts.


localrules:
    tokenizer,


rule tokenizer:
    input:
        manifest=MANIFESTS["train"],
    output:
        model=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
    log:
        f"{LOGS}/tokenizer.log",
    retries: 0
    params:
        tokenizer=stages.tokenizer(config),
    script:
        "../workflow_scripts/tokenizer.py"
