"""The dependency rule of the house: which room may import which, and which imports are heavy."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "geomix"

# room -> rooms of ours that it may import; errors, files and tensors are for all but algebra, kernels and statistics
ALLOWED = {
    "algebra": set(),
    "statistics": set(),
    "settings": {"mixers"},
    "kernels": {"algebra"},
    "mixers": {"algebra", "kernels"},
    "models": {"algebra", "kernels", "mixers", "settings"},
    "training": {"settings"},
    "speech": {"algebra", "mixers", "models", "settings", "statistics", "training"},
    "language": {"kernels", "mixers", "models", "settings", "training", "statistics"},
    "studies": {
        "algebra",
        "espnet_track",
        "kernels",
        "language",
        "mixers",
        "models",
        "settings",
        "speech",
        "statistics",
        "training",
    },
    "report": {"settings", "speech", "statistics", "training"},
}
# a page that goes when phases 2 and 3 of the algebra study have the ordinary pages
AWAITED = {"report/algebra/models.py"}
BASE = {"errors", "files", "tensors"}
LIGHT = {"arguments", "base", "registry", "source"}  # what of the mixers imports no torch


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
        if str(path.relative_to(SOURCE)) in AWAITED:
            continue
        for name in imports(path):
            if name.startswith("geomix."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_settings_know_of_the_house_what_a_mixers_arguments_are_and_nothing_else():
    for path in (SOURCE / "settings").rglob("*.py"):
        for name in imports(path):
            if name.startswith("geomix.") and not name.startswith("geomix.settings"):
                module = name.rpartition(".")[0]
                light = name.startswith("geomix.mixers.") and {module.split(".")[-1], name.split(".")[-1]} & LIGHT
                assert module in ("geomix.errors", "geomix.files") or light, f"{path} imports {name}"


def test_no_files_import_each_other():
    """Wherever in a file an import stands, no way leads back to the file."""
    dotted = lambda path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    files = {dotted(path): path for path in SOURCE.rglob("*.py")}
    graph = {}
    for module, path in files.items():
        known = {name if name in files else name.rpartition(".")[0] for name in imports(path)} & set(files)
        graph[module] = known - {module}
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


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
        "geomix.settings",
        "geomix.training.record",
        "geomix.training.store",
        "geomix.speech.prepared",
        "geomix.speech.manifest",
        "geomix.speech.scoring",
        "geomix.statistics",
        "geomix.studies.kinds",
        "geomix.studies.gate",
    ],
)
def test_light_modules_do_not_load_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_module_of_the_report_loads_torch_and_pandas_is_loaded_where_a_table_is_made():
    files = (path.relative_to(SOURCE.parent) for path in (SOURCE / "report").rglob("*.py"))
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    code = f"import sys, {', '.join(names)}; print(*{{'torch', 'pandas', 'matplotlib', 'jinja2'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_parsing_the_workflow_loads_neither_torch_nor_numpy_nor_scipy():
    """What the Snakefile and the rules import, and what they ask of it: seconds on a login node, at each job of a cluster."""
    found = []
    for path in (ROOT / "Snakefile", *sorted((ROOT / "rules").glob("*.smk"))):
        text = path.read_text(encoding="utf-8")
        found += re.findall(r"^ *((?:from geomix[\w.]* )?import (?:\([^)]*\)|.+))$", text, re.MULTILINE)
    assert "from geomix.settings import read_layer, resolve" in found and len(found) > 10
    code = "\n".join(
        (
            *found,
            "import sys",
            "from geomix.settings import load",
            "for overlays in ([], ['config/smoke.yaml'], ['config/granite.yaml']):",
            "    config = load(*overlays)",
            "    check_study(config)",
            "    stages.stage_settings(config), figure_files(stages.report(config))",
            "print(*{'torch', 'numpy', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules))",
        )
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
