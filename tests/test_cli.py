"""What a person sees when reading or writing goes wrong: a sentence or nothing, never a traceback."""

import os
import subprocess
import sys

import pytest


def geomix(*arguments, **options):
    command = [sys.executable, "-m", "geomix.cli", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_text("u1 A\n")
    (tmp_path / "utt2spk").write_text("u1 張\n", encoding="utf-8")
    return tmp_path / "text"


def test_a_reader_that_has_gone_is_silent(text):
    read, write = os.pipe()
    os.close(read)
    done = geomix("score", text, text, stdout=write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_letter_that_the_terminal_lacks_is_escaped(text):
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    arguments = "score", text, text, "--utt2spk", text.with_name("utt2spk")
    done = geomix(*arguments, stdout=subprocess.PIPE, env=environment)
    assert done.returncode == 0 and "\\u5f35" in done.stdout


@pytest.mark.parametrize("place", ["/proc/none/x.json", "/dev/null", "a" * 300, "text/x.json", "."])
def test_a_place_that_cannot_be_written_is_a_sentence(text, place):
    done = geomix("score", text, text, "--json", place, stdout=subprocess.DEVNULL, cwd=text.parent)
    assert done.returncode == 1
    assert done.stderr.startswith("geomix: ") and place in done.stderr and done.stderr.count("\n") == 1
    assert "name another place" in done.stderr


def test_a_full_disk_behind_the_output_is_a_sentence(text):
    with open("/dev/full", "w") as full:
        done = geomix("score", text, text, stdout=full)
    assert done.returncode == 1
    assert done.stderr == (
        "geomix: the output: the disk is full (No space left on device): free some space and run again\n"
    )


def test_an_interruption_is_a_line(monkeypatch, capsys):
    from geomix import cli

    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert (stopped.value.code, capsys.readouterr().err) == (130, "geomix: interrupted\n")


def test_a_result_does_not_take_the_place_of_what_is_read(text):
    before = text.read_bytes()
    for name in ("text", "./text", "../" + text.parent.name + "/text"):
        done = geomix("score", text, text, "--json", name, stdout=subprocess.DEVNULL, cwd=text.parent)
        assert done.returncode == 1 and "is read here, too" in done.stderr and text.read_bytes() == before


def test_too_little_memory_is_a_sentence(text):
    text.write_text("u1 A\nu2 B\n")
    text.with_name("utt2spk").write_text("u1 s\nu2 t\n")
    arguments = ("--utt2spk", text.with_name("utt2spk"), "--resamples", 10**15)
    done = geomix("compare", text, text, text, *arguments, stdout=subprocess.DEVNULL)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "the memory does not suffice" in done.stderr
