# Tables and figures, from scores and records alone. The final table takes the gate itself; the partial one does not,
# takes whatever is there, and marks what is missing.

from geomix.report.names import figure_files

FIGURES = figure_files(stages.report(config))


localrules:
    report,
    report_partial,


# what the page is made of: the gate's measurement and that it was passed are among it, unless the study has no gate
REPORTED = dict(
    study=f"{RUN}/study.json",
    corpus=f"{RUN}/corpus.json",
    records=of_study(f"{ARM}/record.json"),
    logs=of_study(f"{ARM}/log.jsonl"),
    diagnostics=of_study(f"{ARM}/diagnostics.json"),
    scores=of_study(f"{ARM}/score/{{set}}.json"),
    comparisons=f"{RUN}/comparisons.json",
    agreement=agreement_files(),
    references=rules.granite_table.output.csv if config["granite"] else [],
    gate=[f"{RUN}/parity.json", f"{RUN}/parity.passed"] if config["gate"] else [],
)


rule report:
    input:
        **REPORTED,
    output:
        csv=f"{RUN}/tables.csv",
        markdown=f"{RUN}/tables.md",
        figures=[f"{RUN}/figures/{name}" for name in FIGURES],
    log:
        f"{LOGS}/report.log",
    retries: 0
    script:
        "../workflow_scripts/report.py"


rule report_partial:
    input:
        study=f"{RUN}/study.json",
    output:
        csv=f"{RUN}/partial/tables.csv",
        markdown=f"{RUN}/partial/tables.md",
        figures=[f"{RUN}/partial/figures/{name}" for name in FIGURES],
    log:
        f"{LOGS}/report_partial.log",
    retries: 0
    params:
        # not an input list: an input would have to be made
        scores=lambda wildcards: list(filter(os.path.exists, of_study(f"{ARM}/score/{{set}}.json"))),
    script:
        "../workflow_scripts/report.py"
