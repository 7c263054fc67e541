# The text of the language studies, made into tokens.

from geomix.language.text import FETCHED_ARCHIVE


def text_folder(text):
    """Folder of a text's tokens, named by what they are made with."""
    return f"data/language/{text['name']}-{stages.text_key(text)}"


# the texts of the language and of the algebra study, by their folders
TEXTS = {
    os.path.basename(text_folder(text)): text for text in (config["language"]["corpus"], stages.algebra_text(config))
}
TEXT_FILES = ("train.npy", "valid.npy", "test.npy", "vocab.txt", "corpus.json")
# what is downloaded when the config gives no path
LM_VOCABULARY = "data/language/bert-base-uncased-vocab.txt"


def text_files(text):
    """The prepared files of a text."""
    return [f"{text_folder(text)}/{name}" for name in TEXT_FILES]


localrules:
    download_wikitext,
    download_wordpiece,


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
