"""Text normalisers: what counts as a word, and that every place offers all of them."""

import argparse
import json
import unicodedata
from typing import get_args

import pytest

from geomix.cli import main
from geomix.commands import compare, score
from geomix.settings.study import Granite
from geomix.speech.normalisers import NORMALISERS, letters, whisper_english


@pytest.mark.parametrize(
    "text, words",
    [
        ("हिन्दी में", "हिन्दी में"),  # vowel signs and virama are marks (Mc, Mn) of their letters
        ("ภาษาไทยที่นี่", "ภาษาไทยที่นี่"),
        ("İSTANBUL", "i̇stanbul"),  # lower case is i and a dot above
        ("x̂y, Yo\u0308", "x̂y yö"),  # no composed form, and one that has
        ("\u0301a \u2764\ufe0f b", "a b"),  # a mark without a letter is no word
        ("“It's—well, 'tis” O’Clock_now", "it's well tis o'clock now"),
        ("a\0b", "a b"),
    ],
)
def test_letters(text, words):
    assert letters(text) == words


@pytest.mark.parametrize("text", ["Ångström", "हिन्दी में क़लम", "ĠITĦUB ἀρχῇ", "한국어 말", "ภาษาไทย", "עִבְרִית"])
def test_marks_stay_with_their_letters_however_they_are_encoded(text):
    """Composed and decomposed text of one meaning is one text, of as many words as a reader counts."""
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    assert len({letters(form) for form in forms}) == 1
    assert len(letters(text).split()) == len(text.split())


@pytest.mark.parametrize(
    "text, same",
    [
        ("می\u200cخواهم", "میخواهم"),  # Persian writes prefixes with a zero-width non-joiner
        ("क्\u200dष", "क्ष"),
        ("Donau\u00adschiff", "donauschiff"),  # a soft hyphen
        ("\u202bשלום\u202c", "שלום"),
        ("\ufeffyes", "yes"),
    ],
)
def test_signs_that_are_not_seen_break_no_word(text, same):
    assert letters(text) == same


def test_one_registry():
    """Both commands and the configuration offer the normalisers of the registry, in its order."""
    for command in (score, compare):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        (offered,) = (action.choices for action in parser._actions if action.dest == "normaliser")
        assert list(offered) == list(NORMALISERS)
    assert list(get_args(Granite.model_fields["normaliser"].annotation)) == list(NORMALISERS)


def test_a_command_scores_with_any_of_them(tmp_path):
    """ "It's" against "its" differs as it stands, as letters and as Whisper writes it; capitals and marks only as they stand."""
    (tmp_path / "ref").write_text("u1 HELLO WORLD\n")
    (tmp_path / "hyp").write_text("u1 Hello, world!\n")
    for name, errors in (("none", 2), ("letters", 0), ("whisper-english", 0)):
        texts = [str(tmp_path / "ref"), str(tmp_path / "hyp")]
        main(["score", *texts, "--normaliser", name, "--json", str(tmp_path / "out")])
        found = json.loads((tmp_path / "out").read_text())
        assert (found["words"]["errors"], found["normaliser"]) == (errors, name)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("Mr. Brown won't pay twenty-five dollars", "mister brown will not pay $25"),
        ("the colour of [noise] um, two thousand and three trees", "the color of 2003 trees"),
    ],
)
def test_whispers_normaliser_on_known_pairs(text, normalised):
    """Abbreviations, contractions, numbers, British spelling, fillers and brackets: [Radford2022], appendix C."""
    assert whisper_english()(text) == normalised
