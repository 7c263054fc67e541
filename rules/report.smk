# Tables and figures, from scores and records alone. The final table takes the gate itself; the partial one does not,
# takes whatever is there, and marks what is missing.


localrules:
    report,
    report_partial,


rule report:
    input:
        study=f"{RUN}/study.json",
        records=of_study(f"{ARM}/record.json"),
        scores=of_study(expand(f"{ARM}/score/{{set}}.json", set=EVALUATION_SETS, allow_missing=True)),
        comparisons=f"{RUN}/comparisons.json",
        agreement=agreement_files,
        references=rules.granite_table.output.csv if "granite" in config else [],
        parity=f"{RUN}/parity.json",
        gate=f"{RUN}/parity.passed",
    output:
        csv=f"{RUN}/tables.csv",
        markdown=f"{RUN}/tables.md",
        figures=directory(f"{RUN}/figures"),
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
        figures=directory(f"{RUN}/partial/figures"),
    log:
        f"{LOGS}/report_partial.log",
    retries: 0
    params:
        # not an input list: an input would have to be made
        scores=lambda wildcards: [
            path
            for path in of_study(expand(f"{ARM}/score/{{set}}.json", set=EVALUATION_SETS, allow_missing=True))
            if os.path.exists(path)
        ],
    script:
        "../workflow_scripts/report.py"
