"""`geomix bench`: every registered benchmark has its options; those of products and mixers run, small; the room's place in the house."""

import ast
import csv
import dataclasses
import importlib
import subprocess
import sys

import pytest

from geomix.benchmarks import BENCHMARKS
from geomix.benchmarks.product import COLUMNS as PRODUCT
from geomix.cli import main
from geomix.commands.bench import read_options
from geomix.files import read_json
from tests.conftest import ROOT


def rows(path):
    return list(csv.DictReader(path.open()))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_options_have_defaults_and_help(name, capsys):
    module = importlib.import_module(BENCHMARKS[name].module)
    assert read_options(module.Options, [], name) == module.Options()
    with pytest.raises(SystemExit) as end:
        main(["bench", name, "--help"])
    told = capsys.readouterr().out
    assert end.value.code == 0
    assert all(f"--{field.name.replace('_', '-')}" in told for field in dataclasses.fields(module.Options))


def test_options_take_several_words_apart_or_in_one():
    from geomix.benchmarks.product import Options

    found = read_options(Options, ["--cases", "3,3 5,3", "4,4", "--batches", "1", "8 32", "--no-linear"], "product")
    assert (found.cases, found.batches, found.linear) == (((3, 3), (5, 3), (4, 4)), (1, 8, 32), False)


@pytest.mark.parametrize(
    "words,told", [("--cases 3,4", "1 <= k <= n"), ("--batches 0", "1 or above"), ("--forms nosuch", "choose some")]
)
def test_wrong_options_end_in_a_sentence(words, told, capsys):
    option, _, value = words.partition(" ")
    with pytest.raises(SystemExit):
        main(["bench", "product", option, value])
    assert told in capsys.readouterr().err


def test_products(tmp_path, capsys):
    """A truncated algebra, where the article's "opt" is wrong: its time is told, no speed-up over it."""
    forms = "opt einsum geomix geomix_component_last"
    main(
        [
            "bench",
            "product",
            "--out",
            str(tmp_path),
            "--cases",
            "4,3",
            "--batches",
            "9",
            "--forms",
            forms,
            "--seconds",
            "0.001",
        ]
    )
    found = rows(tmp_path / "product.csv")
    assert tuple(found[0]) == PRODUCT
    of = {(row["form"], row["direction"]): float(row["error"]) for row in found if row["case"] == "n4 k3"}
    assert set(of) == {
        ("opt", "forward"),
        *((form, way) for form in forms.split()[1:] for way in ("forward", "forward+backward")),
    }
    assert of["opt", "forward"] > 0.1 and of["geomix", "forward+backward"] < 1e-5
    assert {row["case"].split(",")[0] for row in found} == {"n4 k3", "linear Cl(3)"}
    ratios = read_json(tmp_path / "product.json")["n4 k3 B=9 forward"]
    assert set(ratios) == {"times_floor", "speedup_over_einsum", "speedup_over_geomix_component_last"}
    assert "opt " in capsys.readouterr().out
    assert (tmp_path / "product.svg").stat().st_size > 1000


def test_mixers(tmp_path):
    small = [
        "--lengths",
        "16",
        "32",
        "--frames",
        "32",
        "--width",
        "16",
        "--rank",
        "4",
        "--kinds",
        "wedge",
        "--seconds",
        "0.001",
    ]
    main(["bench", "mixer", "--out", str(tmp_path), "--device", "cpu", *small])
    found = rows(tmp_path / "mixer.csv")
    assert {(row["form"], row["length"], row["direction"]) for row in found} == {
        (form, length, way)
        for form in ("paper", "averaged", "anchored")
        for length in ("16", "32")
        for way in ("forward", "forward+backward")
    }
    assert all(float(row["error"]) < 1e-5 and float(row["median_us"]) > 0 for row in found)
    assert (tmp_path / "mixer.svg").stat().st_size > 1000


def test_the_columns_are_those_of_the_published_tables():
    from geomix.benchmarks import mixer, product
    from geomix.benchmarks.speed import page

    for name, columns in (
        ("bench/product", product.COLUMNS),
        ("bench/mixer", mixer.COLUMNS),
        ("speed/speed", page.COLUMNS),
    ):
        head = (ROOT / f"results/published/{name}.csv").read_text(encoding="utf-8").splitlines()[0]
        assert head == ",".join(columns)


def test_nothing_imports_benchmarks_but_commands():
    source = ROOT / "src" / "geomix"
    for path in source.rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        names = {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}
        room = path.relative_to(source).parts[0]
        if room not in ("benchmarks", "commands"):
            assert not any(name.startswith("geomix.benchmarks") for name in names), path
        if room == "benchmarks":
            assert not any(name.startswith(("geomix.commands", "geomix.studies")) for name in names), path


def test_names_of_pieces_load_nothing_heavy():
    code = "import sys, geomix.benchmarks.speed.pieces; print(*{'torch', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# [Parslow2026], appendix A.1: baseline and atomic kernel in ms, at B 1, 8, 32 and 128
PUBLISHED_KERNELS = {
    "3, 3": ((0.2779, 0.2617, 0.2551, 0.2606), (0.2491, 0.2469, 0.2434, 0.2383)),
    "4, 3": ((0.3360, 0.3001, 0.2954, 0.2939), (0.2599, 0.2774, 0.2734, 0.2894)),
    "4, 4": ((0.3052, 0.3480, 0.3286, 0.3057), (0.2816, 0.2744, 0.2859, 0.2817)),
    "5, 3": ((0.3952, 0.3853, 0.4054, 0.5594), (0.3576, 0.3627, 0.3926, 0.3663)),
}


def test_the_published_kernels_stand_beside_ours_by_ratio():
    page = (ROOT / "docs/algebra.md").read_text()
    lines = page[page.index("| algebra | on | B 1 |") :].split("\n\n")[0].splitlines()[2:]
    shown = [[cell.strip() for cell in line.strip("|").split("|")][2:] for line in lines]
    expected = []
    for case, kernels in PUBLISHED_KERNELS.items():
        n, k = case.split(", ")
        expected.append([f"{slow / fast:.2f}" for slow, fast in zip(*kernels, strict=True)])
        for folder in ("", "epyc/"):
            with open(ROOT / f"results/published/bench/{folder}product.csv", newline="") as file:
                rows = [r for r in csv.DictReader(file) if r["case"] == f"n{n} k{k}" and r["direction"] == "forward"]
            us = {(row["form"], row["B"]): float(row["median_us"]) for row in rows}
            expected.append([f"{us['gather_scatter', b] / us['geomix', b]:.2f}" for b in ("1", "8", "32", "128")])
    assert shown == expected
