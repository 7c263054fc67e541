# One SentencePiece tokenizer for all arms, seeds and tracks, trained on the training transcripts.


localrules:
    tokenizer,


rule tokenizer:
    input:
        manifest=f"{DATA}/manifest/train.tsv",
    output:
        model=f"{TOKENIZER}/tokenizer.model",
        tokens=f"{TOKENIZER}/tokens.txt",
    log:
        f"{LOGS}/tokenizer.log",
    retries: 0
    params:
        tokenizer=config["tokenizer"],
    script:
        "../workflow_scripts/tokenizer.py"
