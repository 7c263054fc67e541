"""An environment in a path that a shell takes for several words: said in one sentence before anything runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from geomix.errors import UserError
from geomix.interpreter import check_interpreter
from tests.conftest import ROOT

NAMES = ("My Files", "R&D", "Müller's", "new\tfolder", "$HOME", "(old)", "a;b")


@pytest.mark.parametrize("name", NAMES)
def test_a_path_that_is_not_one_word_is_refused(name):
    with pytest.raises(UserError, match="the path of the environment holds .* move the project"):
        check_interpreter(f"/home/{name}/geomix/.venv/bin/python")


@pytest.mark.parametrize("name", ["geomix", "Müller", "張", "a-b_c.d", "a~b", "a#b", "100%"])
def test_what_a_shell_takes_as_one_word_is_accepted(name):
    path = f"/home/{name}/bin/python"
    check_interpreter(path)
    said = subprocess.run(["bash", "-c", f"printf %s\\\\n {path}"], capture_output=True, text=True, check=True).stdout
    assert said == f"{path}\n"


@pytest.mark.parametrize("name", ["My Files", "R&D"])
def test_make_says_so_before_it_makes_an_environment(tmp_path, name):
    if shutil.which("make") is None:
        pytest.skip("no make here")
    folder = tmp_path / name / "geomix"
    shutil.copytree(
        ROOT / "src/geomix", folder / "src/geomix", ignore=shutil.ignore_patterns("[!_eifc]*", "__pycache__")
    )
    for file in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, folder / file)
    done = subprocess.run(["make", "env", f"PYTHON={sys.executable}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode and not (folder / ".venv").exists()
    (sentence,) = (line for line in done.stderr.splitlines() if line.startswith("geomix: "))
    assert "the path of the environment holds" in sentence and name in sentence and "Traceback" not in done.stderr


@pytest.mark.workflow
def test_snakemake_says_so_before_it_runs_a_job(project):
    """The environment of the tests, reached through a folder with a space in its name."""
    environment = project.path("My Files")
    environment.mkdir()
    (environment / ".venv").symlink_to(Path(sys.executable).parents[1])
    command = [environment / ".venv/bin" / Path(sys.executable).name, "-m", "snakemake", "--nocolor"]
    command += ["--configfile", "config/smoke.yaml", "--cores", "1"]
    done = subprocess.run(command, cwd=project.folder, env=os.environ, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode and "My Files/.venv/bin" in said
    assert "the path of the environment holds a space" in said and "Traceback" not in said
    assert not project.path("data").exists()
