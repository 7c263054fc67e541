"""`snakemake algebra` for real, at a size that takes seconds: phase 1 and 2 of it, what they leave, what a change repeats."""

import json

import pytest

from tests.workflow.conftest import copy_workflow

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

OVERLAY = """
algebra:
  run: tiny
  representation: {tasks: [rotors_spin3, analogy, orientation], arms: [clifford, shuffled, gauge, all_plus, dense], tables: 2, gauge_tables: 1, seeds: [0], steps: 20}
  truncation: {tasks: [turn], dimensions: [4], grades: [1, all], tables: 2, seeds: [0], steps: 10}
  layers: {updates: 2, seeds: [0], steps: 2}
  language: {corpus: {name: tiny, vocabulary: 300}, model: {positions: 16, blocks: 1, width: 32, ff_dim: 64}, training: {epochs: 1, max_updates: 4, batch: 8}}
  components: {study: {arms: [scalar, positions, rope], seeds: [0]}}
  architectures: {study: {arms: [wide_scalar, clifford, shuffled], seeds: [0]}}
"""
TINY = ("--configfile", "tiny.yaml")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = copy_workflow(tmp_path_factory.mktemp("algebra"))
    project.path("tiny.yaml").write_text(OVERLAY)
    return project


def jobs(project, *arguments):
    return [job.split()[0] for job in project.plan("algebra", *TINY, *arguments)]


def test_phases_from_config_to_pages(project):
    planned = jobs(project)
    assert planned.count("algebra_job") + planned.count("algebra_job_with_weights") == 15
    assert planned.count("algebra_train") == 6 and planned.count("algebra_interpretability") == 1
    # one task of phase 1 and phase 2, to keep this short; the pages are those of the whole
    run = project.path("results/tiny")
    wanted = [f"results/tiny/representation/orientation/{arm}.json" for arm in ("clifford", "shuffled")]
    project.snakemake(*wanted, "results/tiny/components.md", *TINY, "--cores", "2")
    found = json.loads((run / "representation/orientation/shuffled.json").read_text())
    assert [len(found["errors"]), len(found["errors"][0])] == [2, 1] and len(found["tables"]) == 2
    assert found["parameters"] == 280 and found["record"]["cpu_seconds"] > 0
    page = (run / "components.md").read_text()
    assert "| positions |" in page and "Fixed before the run" in page
    assert (run / "figures/components.svg").is_file()

    # resumes: what is there is not made again; a setting repeats what it concerns
    left = jobs(project)
    assert left.count("algebra_job") + left.count("algebra_job_with_weights") == 13
    assert left.count("algebra_train") == 3 and "prepare_language" not in left
    project.edit("tiny.yaml", "tables: 2", "tables: 3")
    again = jobs(project)
    assert again.count("algebra_job") + again.count("algebra_job_with_weights") == 14
    project.edit("tiny.yaml", "tables: 3", "tables: 2")


def test_a_config_that_leaves_phase_4_without_models_is_refused(project):
    project.path("bad.yaml").write_text(OVERLAY.replace("rotors_spin3, ", ""))
    refused = project.snakemake("algebra", "--configfile", "bad.yaml", "--dry-run", check=False)
    assert refused.returncode != 0 and "leaves out rotors_spin3, whose models phase 4 looks into" in refused.stdout
