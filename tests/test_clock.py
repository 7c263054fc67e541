"""No test measures the clock: none asserts a time, a limit only ends what hangs, and what is slept for is a state.

Read from the syntax trees of the tests. Tools that measure (tests.net, tests.gpu, tests.fuzz, tests.granite_mutations) are no tests.
"""

import ast

from tests.conftest import ROOT

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
LONG = 300
"""Seconds below which a limit could end what only waits for a processor."""
TOOLS = ("tests/net.py", "tests/gpu/", "tests/fuzz/", "tests/granite_mutations.py")
FILES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if not str(path.relative_to(ROOT)).startswith(TOOLS)
}


def is_clock(node) -> bool:
    """A call of a clock."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCKS
        and getattr(node.func.value, "id", None) == "time"
    )


def inside(tree, *kinds):
    """Nodes that stand inside a node of these kinds."""
    return {
        id(inner) for node in ast.walk(tree) if isinstance(node, kinds) for inner in ast.walk(node) if inner is not node
    }


def times(tree) -> set[str]:
    """Names that are given a difference or a sum of clock readings."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(map(is_clock, ast.walk(node.value)))
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def test_no_assertion_is_about_a_time():
    """Outside loops, which end what never comes, no assertion reads a clock or what a clock gave."""
    for name, tree in FILES.items():
        loops = inside(tree, ast.While)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and id(node) not in loops:
                read = [
                    n for n in ast.walk(node.test) if is_clock(n) or isinstance(n, ast.Name) and n.id in times(tree)
                ]
                assert not read, f"{name}, line {node.lineno}"


def test_a_limit_only_ends_what_hangs():
    for name, tree in FILES.items():
        constants = {
            t.id: n.value.value
            for n in tree.body
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        limits = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                limits += [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("wait", "join", "communicate"):
                    limits += node.args[:1]
            if isinstance(node, ast.BinOp) and is_clock(node.left):
                limits.append(node.right)
        for limit in limits:
            value = limit.value if isinstance(limit, ast.Constant) else constants.get(getattr(limit, "id", None))
            assert not isinstance(value, int | float) or value >= LONG, f"{name}, line {limit.lineno}: {value} s"


# a kill at a random moment may come at any: what it leaves must be right; a process told to stop never wakes from its sleep
AT_ANY_MOMENT = {"tests/faults/harness.py": 1, "tests/training/test_loop.py": 2, "tests/training/toy.py": 1}


def test_what_is_slept_for_is_a_state():
    """A sleep is the pause of a loop that looks for a state; others are counted and explained above."""
    for name, tree in FILES.items():
        loops = inside(tree, ast.While)
        sleeps = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "sleep"
        ]
        assert sum(id(sleep) not in loops for sleep in sleeps) == AT_ANY_MOMENT.get(name, 0), name
