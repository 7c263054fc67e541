# geomix: does a sequence mixer that carries geometric structure do better than the same mixer without it?
#
#   snakemake --cores all                                      the full speech study (config.yaml)
#   snakemake --configfile config/an4.yaml --cores 2           an overlay: another run
#   snakemake --profile slurm                                  the same on a Slurm cluster
#
# Targets: speech (the default), tables, tables_partial, hypotheses, attention_only, prepare; language; speed; algebra;
# granite (with config/granite.yaml).

from snakemake.exceptions import WorkflowError

from geomix.errors import UserError
from geomix.espnet_track.environment import espnet_python
from geomix.espnet_track.settings import check_study
from geomix.interpreter import check_interpreter
from geomix.settings import read_layer, resolve


# beside this file, wherever snakemake is called
configfile: f"{workflow.basedir}/config.yaml"


# $GEOMIX_DATA in a path stands for the folder of local data sets
os.environ.setdefault("GEOMIX_DATA", "../shared/data")

# from here on `config` is complete: checked, with every default filled in
try:
    check_interpreter()
    for path in workflow.configfiles:
        if str(path).endswith((".yaml", ".yml")):
            read_layer(path)  # Snakemake's own reader keeps the second of two equal keys in silence
    _resolved = resolve(config)
    check_study(_resolved)
except UserError as error:
    raise WorkflowError(str(error)) from None
config.clear()
config.update(_resolved)


include: "rules/common.smk"
include: "rules/corpus.smk"
include: "rules/tokenizer.smk"
include: "rules/language.smk"
include: "rules/train.smk"
include: "rules/average.smk"
include: "rules/decode.smk"
include: "rules/score.smk"
include: "rules/espnet.smk"


if config["granite"]:

    include: "rules/granite.smk"

else:

    localrules:
        granite,

    rule granite:
        retries: 0
        message:
            "granite needs a configuration that names checkpoints: --configfile config/granite.yaml"
        shell:
            "exit 1"


# before the first job: hours may pass before the first one that needs ESPnet
onstart:
    if any(job.rule.name == "train_espnet" for job in workflow.dag.needrun_jobs()):
        try:
            espnet_python()
        except UserError as error:
            raise WorkflowError(str(error)) from None


include: "rules/studies.smk"
include: "rules/speed.smk"
include: "rules/algebra.smk"
include: "rules/page.smk"


localrules:
    speech,
    tables,
    tables_partial,
    hypotheses,
    attention_only,
    language,
    language_attention,
    prepare,


rule speech:
    default_target: True
    input:
        study_files(SPEECH),
        f"{RUN}/page",


rule tables:
    input:
        study_files(SPEECH),


rule tables_partial:
    input:
        f"{RUN}/partial/tables.md",
        f"{RUN}/partial/page",


# up to the hypotheses: `--until decode` stops at the gate, which it does not know how to pass
rule hypotheses:
    input:
        SPEECH.files("hyp/{set}/text"),


if SPEECH.gate:

    rule attention_only:
        input:
            f"{RUN}/parity.json",

else:

    rule attention_only:
        retries: 0
        message:
            "attention_only measures the gate's arm, and this study has no gate (gate: null): name one, or another target"
        shell:
            "exit 1"


LANGUAGE = STUDIES.get(f"{config['run']}/language")

if LANGUAGE:

    rule language:
        input:
            study_files(LANGUAGE),
            f"{LANGUAGE.folder}/page",

else:

    rule language:
        retries: 0
        message:
            "language trains arms of language models, and this configuration names none (language.arms): name some"
        shell:
            "exit 1"


if LANGUAGE and LANGUAGE.gate:

    rule language_attention:
        input:
            f"{LANGUAGE.folder}/parity.json",

else:

    rule language_attention:
        retries: 0
        message:
            "language_attention measures the gate's arm, and this study has no gate (language.gate: null): name one"
        shell:
            "exit 1"


rule prepare:
    input:
        unpack(training_data),
        [features_of(name) for name in EVALUATION_SETS],
        rules.check_corpus.output,
