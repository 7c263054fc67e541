"""Kernels kept on disk: checked before they run, written whole, never needed."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from geomix.algebra import Algebra
from geomix.kernels.product import cache, cpu, naive
from geomix.kernels.product.sums_of_products import backward_sums, forward_sums

pytest.importorskip("llvmlite")
TABLE = Algebra(2, 1).product()


@pytest.fixture
def emitted(tmp_path, monkeypatch):
    """An empty cache folder and nothing in memory; the list grows by one with each compilation."""
    monkeypatch.setenv("GEOMIX_CACHE", str(tmp_path))
    cpu._compile.cache_clear()
    calls, emit = [], cpu.emit
    monkeypatch.setattr(cpu, "emit", lambda ir: calls.append(ir) or emit(ir))
    yield calls
    cpu._compile.cache_clear()


def forget():
    """What a new process knows."""
    cpu._compile.cache_clear()


def right(table=TABLE) -> bool:
    a, b = torch.randn(2, table.left, 40)
    return torch.allclose(cpu.run((forward_sums, table), (a, b))[0], naive.bilinear(table, a, b), atol=1e-5)


def test_a_second_process_compiles_nothing(emitted):
    assert right() and len(emitted) == 1
    forget()
    assert right() and len(emitted) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: b"",
        lambda whole: bytes(len(whole)),
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: whole[len(cache.MARK) + 32 :],  # the code alone, as older versions wrote it
        lambda whole: b"\x7fELF" + os.urandom(2000),
    ],
    ids=["cut", "empty", "zeros", "one bit", "without a mark", "noise"],
)
def test_a_damaged_object_is_compiled_anew_and_replaced(emitted, tmp_path, damage):
    assert right()
    (file,) = (tmp_path / "cpu").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    forget()
    assert right() and len(emitted) == 2
    assert file.read_bytes() == whole
    forget()
    assert right() and len(emitted) == 2


def test_the_object_of_another_kernel_is_not_run_under_a_wrong_name(emitted, tmp_path):
    assert right()
    (mine,) = (tmp_path / "cpu").iterdir()
    other = Algebra(1, 2).product()
    assert right(other)
    (theirs,) = (file for file in (tmp_path / "cpu").iterdir() if file != mine)
    theirs.write_bytes(mine.read_bytes())
    forget()
    assert right(other) and len(emitted) == 3


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/none", "a\0b"])
def test_a_folder_that_cannot_be_made_costs_a_compilation_and_nothing_else(emitted, tmp_path, monkeypatch, place):
    (tmp_path / "a file").write_text("")
    place = {"a file": tmp_path / "a file", "below a file": tmp_path / "a file" / "x"}.get(place, place)
    monkeypatch.setattr(cache, "folder", lambda kind: cache.Path(place))
    assert right() and len(emitted) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a file"]


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_no_temporary_file(emitted, tmp_path, monkeypatch, broken):
    def full(*_):
        raise OSError(28, "No space left on device")

    if broken == "write":
        real = os.fdopen

        def fdopen(*given):
            file = real(*given)
            return type("Full", (), {"__enter__": lambda s: s, "__exit__": lambda s, *e: file.close(), "write": full})()

        monkeypatch.setattr(cache.os, "fdopen", fdopen)
    else:
        monkeypatch.setattr(cache.os, broken, full)
    assert right()
    assert list((tmp_path / "cpu").iterdir()) == []


def test_an_object_that_cannot_be_read_is_compiled_anew(emitted, tmp_path):
    assert right()
    (file,) = (tmp_path / "cpu").iterdir()
    file.unlink()
    file.mkdir()  # root reads a file of mode 0, but nobody reads a folder
    forget()
    assert right() and len(emitted) == 2 and file.is_dir()


PRODUCT = """
import torch
from geomix.algebra import Algebra
from geomix.kernels.product import product
print(product(Algebra(3).product(), torch.ones(2, 8), torch.ones(2, 8)).shape)
"""


@pytest.mark.parametrize("home", ["/proc/none", None, ""])
def test_a_program_runs_without_a_home(home, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k not in ("GEOMIX_CACHE", "XDG_CACHE_HOME", "HOME")}
    if home is not None:
        environment["HOME"] = home
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "[2, 8]" in done.stdout, done.stderr[-500:]


def test_processes_that_start_at_once_share_an_empty_cache(tmp_path):
    environment = {**os.environ, "GEOMIX_CACHE": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", PRODUCT], env=environment, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [process.wait() for process in started] == [0, 0, 0]
    (file,) = (tmp_path / "cpu").iterdir()
    assert cache.MARK == file.read_bytes()[: len(cache.MARK)]


def test_threads_that_start_at_once_compile_each_kernel_once(emitted):
    """Code that a second compilation replaced was freed while it ran: a segmentation fault, five times of five."""
    tables = [Algebra(3, 0, 1).product(), Algebra(2, 1).product(), Algebra(4).product()]
    go, results = threading.Barrier(4), []

    def work():
        go.wait()
        results.extend(right(table) for table in tables)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 12 and len(emitted) == 3


def test_code_lives_as_long_as_its_function(emitted):
    """Also when the cache has dropped it and the machine has compiled others since."""
    kernel = cpu.compile_sums((forward_sums, TABLE), torch.float32)
    forget()
    for table in (Algebra(1, 1).product(), Algebra(0, 2).product(), Algebra(2).product()):
        cpu.compile_sums((backward_sums, table), torch.float32)
    a, b = torch.randn(2, TABLE.left, 64)
    out = torch.empty(TABLE.out, 64)
    kernel(a.data_ptr(), b.data_ptr(), out.data_ptr(), 64, 64, 64, 64)
    assert torch.allclose(out, naive.bilinear(TABLE, a, b), atol=1e-5)


def test_triton_sources_are_in_no_file(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    import inspect

    from geomix.kernels.product import fused

    monkeypatch.setenv("GEOMIX_CACHE", str(tmp_path))
    fused._compile.cache_clear()
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(fused.compile_sums(forward_sums, TABLE)[0])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(kernel) for kernel in results}) == 1
    assert "def kernel(a, b, out" in inspect.getsource(results[0].fn)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["/proc/none", "below a file"])
def test_triton_gets_a_folder_of_its_own_where_its_cache_cannot_be_written(tmp_path, monkeypatch, place):
    from geomix.kernels import launch

    (tmp_path / "a file").write_text("")
    asked = place if place.startswith("/") else str(tmp_path / "a file" / "cache")
    for kept, expected in ((str(tmp_path / "fine"), True), (asked, False)):
        monkeypatch.setenv("TRITON_CACHE_DIR", kept)
        launch.writable_cache.cache_clear()
        launch.writable_cache()
        assert (os.environ["TRITON_CACHE_DIR"] == kept) is expected and os.path.isdir(os.environ["TRITON_CACHE_DIR"])
    launch.writable_cache.cache_clear()
