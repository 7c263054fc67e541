"""The run record's view of the code: its commit, and what makes it dirty."""

import subprocess

from geomix.training.record import code_version, package_versions


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_dirty_looks_at_code_alone(tmp_path):
    for name in ("src/a.py", "results/an4/tables.csv", "config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    clean = code_version(tmp_path)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "results/an4/tables.csv").write_text("2")
    assert code_version(tmp_path) == clean
    (tmp_path / "src/a.py").write_text("2")
    assert code_version(tmp_path) == {**clean, "dirty": True}


def test_no_repository_is_said_and_not_guessed(tmp_path):
    assert code_version(tmp_path / "nowhere") == {"commit": None, "dirty": None}


def test_package_versions_are_those_installed():
    import torch

    versions = package_versions()
    assert versions["torch"] == torch.__version__.split("+")[0]
    assert {"python", "numpy", "geomix"} <= set(versions)
