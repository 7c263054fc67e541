# The language study (e01): text to tokens, one training an arm and seed, the gate on the published perplexity, tables.

from geomix.language.text import FETCHED_ARCHIVE
from geomix.report.names import figure_files
from geomix.settings import language_trainings_of

LANGUAGE = config["language"]
LM_RUN = f"{RUN}/language"
LM_ARM = f"{LM_RUN}/{{arm}}/seed{{seed}}"
LM_TRAININGS = language_trainings_of(LANGUAGE) if LANGUAGE["arms"] else []
LM_GATE = LANGUAGE["gate"]


def text_folder(text):
    """Folder of a text's tokens, named by what they are made with."""
    return f"data/language/{text['name']}-{stages.text_key(text)}"


LM_DATA = text_folder(LANGUAGE["corpus"])
# the texts of the language and of the algebra study, by their folders
TEXTS = {os.path.basename(text_folder(text)): text for text in (LANGUAGE["corpus"], stages.algebra_text(config))}
TEXT_FILES = ("train.npy", "valid.npy", "test.npy", "vocab.txt", "corpus.json")
LM_FILES = [f"{LM_DATA}/{name}" for name in TEXT_FILES]
# what is downloaded when the config gives no path
LM_VOCABULARY = "data/language/bert-base-uncased-vocab.txt"


localrules:
    language,
    download_wikitext,
    download_wordpiece,
    describe_language,
    language_report,


def language_text(wildcards):
    """Files that the tokens are made of: downloaded where the config names none, nothing for the built-in text."""
    text, files = TEXTS[wildcards.text], {}
    if text["kind"] == "wikitext":
        files["text"] = os.path.expandvars(text["path"] or FETCHED_ARCHIVE)
    if not isinstance(text["vocabulary"], int):
        files["vocabulary"] = os.path.expandvars(text["vocabulary"] or LM_VOCABULARY)
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
        expand("data/language/{text}/{file}", file=TEXT_FILES, allow_missing=True),
    log:
        f"{LOGS}/language/prepare-{{text}}.log",
    wildcard_constraints:
        text="|".join(map(re.escape, TEXTS)),
    params:
        corpus=lambda wildcards: TEXTS[wildcards.text],
    script:
        "../workflow_scripts/language_prepare.py"


def language_gate_of(wildcards):
    """What a gated arm waits for; a plain input, as in train.smk."""
    return f"{LM_RUN}/parity.passed" if LM_GATE and LANGUAGE["arms"][wildcards.arm]["gated"] else []


rule train_language:
    input:
        LM_FILES,
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
    params:
        settings=lambda wildcards: stages.language_training(config, wildcards.arm, int(wildcards.seed)),
    script:
        "../workflow_scripts/language_train.py"


# what the study is, for the report
rule describe_language:
    output:
        f"{LM_RUN}/study.json",
    log:
        f"{LOGS}/language/describe.log",
    params:
        study=stages.language_report(config),
    script:
        "../workflow_scripts/language_describe.py"


if LM_GATE:

    localrules:
        measure_language_parity,
        language_gate,

    rule measure_language_parity:
        input:
            records=[f"{LM_RUN}/{LM_GATE['arm']}/seed{seed}/record.json" for seed in LM_GATE["seeds"]],
        output:
            f"{LM_RUN}/parity.json",
        log:
            f"{LOGS}/language/measure_parity.log",
        params:
            gate=LM_GATE,
            corpus=LANGUAGE["corpus"]["name"],
            run=LM_RUN,
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
            "../workflow_scripts/parity_gate.py"


rule language_report:
    input:
        [f"{LM_RUN}/parity.json", f"{LM_RUN}/parity.passed"] if LM_GATE else [],
        study=rules.describe_language.output,
        records=[f"{LM_RUN}/{arm}/seed{seed}/record.json" for arm, seed in LM_TRAININGS],
        logs=[f"{LM_RUN}/{arm}/seed{seed}/log.jsonl" for arm, seed in LM_TRAININGS],
    output:
        csv=f"{LM_RUN}/tables.csv",
        markdown=f"{LM_RUN}/tables.md",
        comparisons=f"{LM_RUN}/comparisons.json",
        figures=[f"{LM_RUN}/figures/{name}" for name in figure_files(LANGUAGE)] if LM_TRAININGS else [],
    log:
        f"{LOGS}/language/report.log",
    script:
        "../workflow_scripts/language_report.py"


rule language:
    input:
        rules.language_report.output,
        [f"{LM_RUN}/{arm}/seed{seed}/record.json" for arm, seed in LM_TRAININGS],
