# What each study has once, whatever it studies: its description, its gate, the comparison of its arms, its tables and figures.
# A rule's name ends with the study's suffix, which the configuration's own speech study has not. Measuring the gate always
# succeeds and keeps its record; passing it is a rule of its own, since a failing rule loses its outputs.

import json

from geomix.report.names import figure_files


def described_from(study):
    """What a study's description reads beside the settings."""
    if study.kind == "speech":
        return {"tokens": f"{TOKENIZER}/tokens.txt"}
    return {"text": f"{text_folder(study.config['corpus'])}/corpus.json"}


def description(study):
    """Params of a study's description."""
    manifests = {"manifests": {name: MANIFESTS[name] for name in EVALUATION_SETS}}
    return {"config": study.description, **(manifests if study.kind == "speech" else {})}


def compared(study):
    """What a study's arms are compared by."""
    if study.kind == "speech":
        return {"scores": study.files("score/{set}.tsv")}
    return {"records": study.files("record.json")}


def reported(study):
    """What a study's page is made of: the gate's measurement and that it was passed are among it, unless it has no gate."""
    files = dict(
        study=f"{study.folder}/study.json",
        records=study.files("record.json"),
        logs=study.files("log.jsonl"),
        diagnostics=study.files("diagnostics.json"),
        comparisons=f"{study.folder}/comparisons.json",
        judged=f"{study.folder}/judged.json",
        gate=[f"{study.folder}/parity.json", f"{study.folder}/parity.passed"] if study.gate else [],
    )
    if study.kind == "speech":
        files |= dict(scores=study.files("score/{set}.json"))
    if study is SPEECH:
        granite = f"{RUN}/granite/tables.csv" if config["granite"] else []
        files |= dict(corpus=f"{RUN}/corpus.json", agreement=agreement_files(), references=granite)
    return files


def pages(study, folder=None):
    """A study's tables and figures by the names of the rule's output."""
    folder = folder or study.folder
    figures = [f"{folder}/figures/{name}" for name in figure_files(study.description)]
    return dict(csv=f"{folder}/tables.csv", markdown=f"{folder}/tables.md", figures=figures)


def in_report(files, study):
    """Tables and figures as outputs that `snakemake --report` takes along."""
    captions = {"csv": "table", "markdown": "page", "figures": "figures"}
    mark = lambda path, name: report(
        path, caption=f"captions/{captions[name]}.rst", category=study.name, labels={"what": os.path.basename(path)}
    )
    return {
        name: mark(found, name) if isinstance(found, str) else [mark(path, name) for path in found]
        for name, found in files.items()
    }


def study_files(study):
    """All that a study is asked for; a model is made only for what needs it."""
    files = [*pages(study).values(), *reported(study).values(), *compared(study).values()]
    if study.kind == "speech":
        files.append(study.files("hyp/{set}/text"))
    return [path for each in files for path in ([each] if isinstance(each, str) else each)]


def fallback_of(study):
    """Input function: files of the gate's fallback when its own arm missed the target, and what measured that."""

    def files(wildcards):
        if not study.gate.get("fallback"):
            return []
        anchor = getattr(checkpoints, f"measure_anchor{study.suffix}").get().output[0]
        with open(anchor) as file:
            passed = json.load(file)["passed"]
        return [anchor] if passed else [anchor, *study.judged(study.gate["fallback"])]

    return files


def there(study):
    """Param function: the scores that exist; not an input list, since an input would have to be made."""
    return lambda wildcards: list(filter(os.path.exists, study.files("score/{set}.json")))


for study in STUDIES.values():

    # arms with their exact sizes (an unmatched arm is refused here), contrasts, gate, reference rows
    rule:
        name:
            f"describe{study.suffix}"
        input:
            **described_from(study),
        output:
            f"{study.folder}/study.json",
        log:
            f"{study.logs}/describe.log",
        priority: 1
        retries: 0
        localrule: True
        params:
            **description(study),
        script:
            "../workflow_scripts/describe.py"

    if study.gate and study.gate.get("fallback"):

        # a checkpoint, since only a miss makes the fallback train
        checkpoint:
            name:
                f"measure_anchor{study.suffix}"
            input:
                study.judged(study.gate),
            output:
                f"{study.folder}/anchor.json",
            log:
                f"{study.logs}/measure_anchor.log",
            retries: 0
            localrule: True
            params:
                **study.measured,
            script:
                "../workflow_scripts/measure_anchor.py"

    if study.gate:

        rule:
            name:
                f"measure_parity{study.suffix}"
            input:
                study.judged(study.gate),
                fallback_of(study),
            output:
                f"{study.folder}/parity.json",
            log:
                f"{study.logs}/measure_parity.log",
            retries: 0
            localrule: True
            params:
                **study.measured,
            script:
                "../workflow_scripts/measure_parity.py"

        rule:
            name:
                f"parity_gate{study.suffix}"
            input:
                f"{study.folder}/parity.json",
            output:
                touch(f"{study.folder}/parity.passed"),
            log:
                f"{study.logs}/parity_gate.log",
            retries: 0
            localrule: True
            script:
                "../workflow_scripts/parity_gate.py"

    # differences between arms with their intervals, and how what was expected came out
    rule:
        name:
            f"compare{study.suffix}"
        input:
            **compared(study),
            study=f"{study.folder}/study.json",
        output:
            comparisons=f"{study.folder}/comparisons.json",
            judged=f"{study.folder}/judged.json",
        log:
            f"{study.logs}/compare.log",
        retries: 0
        localrule: True
        params:
            comparison=study.comparison,
        script:
            "../workflow_scripts/compare.py"

    # from scores and records alone; the final tables take the gate itself, the partial ones do not, take whatever is there, and
    # mark what is missing
    rule:
        name:
            f"report{study.suffix}"
        input:
            **reported(study),
        output:
            **in_report(pages(study), study),
        log:
            f"{study.logs}/report.log",
        retries: 0
        localrule: True
        script:
            "../workflow_scripts/report.py"

    if study.kind == "speech":

        rule:
            name:
                f"report_partial{study.suffix}"
            input:
                study=f"{study.folder}/study.json",
            output:
                **pages(study, f"{study.folder}/partial"),
            log:
                f"{study.logs}/report_partial.log",
            retries: 0
            localrule: True
            params:
                scores=there(study),
            script:
                "../workflow_scripts/report.py"
