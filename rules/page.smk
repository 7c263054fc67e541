# The results page of each study and of the algebra run: a folder that a browser opens from disk. It is made of what the tables are
# made of, hypotheses and manifests; the partial one of what is there, with the curves of trainings that run.


import glob


def paged(study):
    """What a study's page is made of beside what its tables are."""
    if study.kind != "speech":
        return {}
    return dict(hypotheses=study.files("hyp/{set}/text"), manifests=[MANIFESTS[name] for name in EVALUATION_SETS])


def so_far(wildcards):
    """Sizes of all logs in the store: a page of a running study is made anew when one has grown."""
    return [os.path.getsize(path) for path in sorted(glob.glob("state/*/log.jsonl"))]


def results_page(folder, category):
    """The folder of a page as an output that `snakemake --report` takes along."""
    caption, labels = "captions/results_page.rst", {"what": "results page"}
    return report(directory(folder), caption=caption, category=category, labels=labels, htmlindex="index.html")


for study in STUDIES.values():

    rule:
        name:
            f"page{study.suffix}"
        input:
            study_files(study),
            **paged(study),
        output:
            results_page(f"{study.folder}/page", study.name),
        log:
            f"{study.logs}/page.log",
        retries: 0
        localrule: True
        script:
            "../workflow_scripts/page.py"

    if study.kind == "speech":

        rule:
            name:
                f"page_partial{study.suffix}"
            input:
                f"{study.folder}/partial/tables.md",
            output:
                directory(f"{study.folder}/partial/page"),
            log:
                f"{study.logs}/page_partial.log",
            retries: 0
            localrule: True
            params:
                logs=so_far,
            script:
                "../workflow_scripts/page.py"


rule algebra_page:
    input:
        rules.algebra_representation.output,
        [f"{ALG_RUN}/{phase}.md" for phase in ALG_STUDIES],
        rules.algebra_interpretability_report.output,
    output:
        results_page(f"{ALG_RUN}/page", ALGEBRA["run"]),
    log:
        f"{ALG_LOGS}/page.log",
    retries: 0
    localrule: True
    script:
        "../workflow_scripts/page.py"
