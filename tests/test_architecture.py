"""The dependency rule of the house: which room may import which, and which imports are heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "geomix"

# room -> rooms of ours that it may import; errors, files, tensors and config are for all but algebra, kernels and statistics
ALLOWED = {
    "algebra": set(),
    "statistics": set(),
    "kernels": {"algebra"},
    "mixers": {"algebra", "kernels"},
    "models": {"algebra", "kernels", "mixers"},
    "training": set(),
    "speech": {"models", "training"},
    "language": {"kernels", "mixers", "models", "training", "statistics"},
}
BASE = {"errors", "files", "tensors", "config"}


def imports(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; name the package"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_what_lies_below_them(room):
    allowed = ALLOWED[room] | {room} | (set() if room in ("algebra", "kernels", "statistics") else BASE)
    for path in (SOURCE / room).rglob("*.py"):
        for name in imports(path):
            if name.startswith("geomix."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_nothing_in_the_package_imports_snakemake():
    for path in SOURCE.rglob("*.py"):
        assert not any(name.split(".")[0] == "snakemake" for name in imports(path)), path


def test_workflow_scripts_only_call_the_package():
    """A script reads `snakemake` under the main guard and defines nothing."""
    scripts = sorted((ROOT / "workflow_scripts").glob("*.py"))
    assert scripts
    for path in scripts:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Lambda)], path


@pytest.mark.parametrize(
    "module",
    [
        "geomix.cli",
        "geomix.config",
        "geomix.speech.manifest",
        "geomix.speech.scoring",
        "geomix.statistics",
        "geomix.report",
    ],
)
def test_light_modules_do_not_load_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
