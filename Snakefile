# geomix: does a sequence mixer that carries geometric structure do better than the same mixer without it?
#
#   snakemake --cores all                                      the full speech study (config.yaml)
#   snakemake --configfile config/an4.yaml --cores 2           an overlay: another run
#   snakemake --profile slurm                                  the same on a Slurm cluster
#
# Targets: speech (the default), tables, tables_partial, attention_only, prepare; language; speed; algebra; granite (with config/granite.yaml).

from snakemake.exceptions import WorkflowError

from geomix.config import validate_config
from geomix.errors import UserError
from geomix.espnet_track.settings import check_study


configfile: "config.yaml"


try:
    validate_config(config)
    check_study(config)
except UserError as error:
    raise WorkflowError(str(error)) from None


include: "rules/common.smk"
include: "rules/corpus.smk"
include: "rules/tokenizer.smk"
include: "rules/train.smk"
include: "rules/gate.smk"
include: "rules/average.smk"
include: "rules/decode.smk"
include: "rules/score.smk"
include: "rules/espnet.smk"


if "granite" in config:

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


include: "rules/compare.smk"
include: "rules/report.smk"
include: "rules/language.smk"
include: "rules/speed.smk"
include: "rules/algebra.smk"


localrules:
    speech,
    tables,
    tables_partial,
    attention_only,
    prepare,


rule speech:
    default_target: True
    input:
        rules.report.output,


rule tables:
    input:
        rules.report.output,


rule tables_partial:
    input:
        f"{RUN}/partial/tables.md",


rule attention_only:
    input:
        rules.measure_parity.output,


rule prepare:
    input:
        unpack(training_data),
        expand(f"{DATA}/features/{{set}}-sp1.0.{FEATURES}", set=EVALUATION_SETS),
