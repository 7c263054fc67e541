# The language study (e01): text to tokens, one training an arm and seed, the gate on the published perplexity, tables.

from geomix.language.settings import check_language, language_settings, runs_of
from geomix.language.text import FETCHED_ARCHIVE

LANGUAGE = config["language"]
try:
    check_language(LANGUAGE)
except UserError as error:
    raise WorkflowError(str(error)) from None

LM_TEXT = LANGUAGE["corpus"]
LM_DATA = f"data/language/{LM_TEXT['name']}"
LM_RUN = f"{RUN}/language"
LM_ARM = f"{LM_RUN}/{{arm}}/seed{{seed}}"
LM_FILES = [f"{LM_DATA}/{name}" for name in ("train.npy", "valid.npy", "test.npy", "vocab.txt", "corpus.json")]
# what is downloaded when the config gives no path
LM_VOCABULARY = "data/language/bert-base-uncased-vocab.txt"


localrules:
    language,
    language_attention,
    download_wikitext,
    download_wordpiece,
    describe_language,
    settings_language,
    measure_language_parity,
    language_gate,
    language_report,


def language_text(wildcards):
    """Files that the tokens are made of: downloaded where the config names none, nothing for the built-in text."""
    files = {}
    if LM_TEXT["kind"] == "wikitext":
        files["text"] = LM_TEXT["path"] or FETCHED_ARCHIVE
    if not isinstance(LM_TEXT["vocabulary"], int):
        files["vocabulary"] = LM_TEXT["vocabulary"] or LM_VOCABULARY
    return files


rule download_wikitext:
    output:
        FETCHED_ARCHIVE,
    log:
        "logs/language/download_wikitext.log",
    params:
        source="RAW_ARCHIVE",
    script:
        "../workflow_scripts/language_download.py"


rule download_wordpiece:
    output:
        LM_VOCABULARY,
    log:
        "logs/language/download_wordpiece.log",
    params:
        source="BERT_VOCABULARY",
    script:
        "../workflow_scripts/language_download.py"


rule prepare_language:
    input:
        unpack(language_text),
    output:
        LM_FILES,
    log:
        f"{LOGS}/language/prepare.log",
    params:
        corpus=LM_TEXT,
    script:
        "../workflow_scripts/language_prepare.py"


def language_gate_of(wildcards):
    """Gated arms wait for the gate; `ancient`, so that a re-run of the Transformer does not re-train them."""
    return ancient(f"{LM_RUN}/parity.passed") if LANGUAGE["arms"][wildcards.arm].get("gated") else []


# all that decides the weights, in a file: see the rule `settings` of train.smk for why it is a rule of its own
rule settings_language:
    output:
        f"{LM_ARM}/settings.json",
    log:
        f"{LOGS}/language/{{arm}}/seed{{seed}}/settings.log",
    params:
        settings=lambda wildcards: language_settings(LANGUAGE, wildcards.arm, int(wildcards.seed)),
    script:
        "../workflow_scripts/settings.py"


rule train_language:
    input:
        LM_FILES,
        settings=f"{LM_ARM}/settings.json",
        gate=language_gate_of,
    output:
        record=f"{LM_ARM}/record.json",
        log=f"{LM_ARM}/log.jsonl",
        diagnostics=f"{LM_ARM}/diagnostics.json",
        weights=f"{LM_ARM}/model.safetensors",
        model=f"{LM_ARM}/model.yaml",
    log:
        f"{LOGS}/language/{{arm}}/seed{{seed}}.log",
    threads: LANGUAGE["training"]["threads"]
    script:
        "../workflow_scripts/language_train.py"


# what the study is, for the report
rule describe_language:
    output:
        f"{LM_RUN}/study.json",
    log:
        f"{LOGS}/language/describe.log",
    params:
        run=config["run"],
        language=LANGUAGE,
    script:
        "../workflow_scripts/language_describe.py"


rule measure_language_parity:
    input:
        study=rules.describe_language.output,
        records=[f"{LM_RUN}/{LANGUAGE['gate']['arm']}/seed{seed}/record.json" for seed in LANGUAGE["gate"]["seeds"]],
    output:
        f"{LM_RUN}/parity.json",
    log:
        f"{LOGS}/language/measure_parity.log",
    script:
        "../workflow_scripts/language_parity.py"


rule language_gate:
    input:
        f"{LM_RUN}/parity.json",
    output:
        touch(f"{LM_RUN}/parity.passed"),
    log:
        f"{LOGS}/language/gate.log",
    retries: 0
    script:
        "../workflow_scripts/language_gate.py"


rule language_report:
    input:
        study=rules.describe_language.output,
        records=[f"{LM_RUN}/{arm}/seed{seed}/record.json" for arm, seed in runs_of(LANGUAGE)],
        logs=[f"{LM_RUN}/{arm}/seed{seed}/log.jsonl" for arm, seed in runs_of(LANGUAGE)],
        parity=f"{LM_RUN}/parity.json",
        gate=f"{LM_RUN}/parity.passed",
    output:
        csv=f"{LM_RUN}/tables.csv",
        markdown=f"{LM_RUN}/tables.md",
        comparisons=f"{LM_RUN}/comparisons.json",
        figures=directory(f"{LM_RUN}/figures"),
    log:
        f"{LOGS}/language/report.log",
    script:
        "../workflow_scripts/language_report.py"


rule language:
    input:
        rules.language_report.output,


# the baseline and its parity alone
rule language_attention:
    input:
        rules.measure_language_parity.output,
