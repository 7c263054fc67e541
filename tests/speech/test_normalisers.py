"""Text normalisers: what counts as a word."""

import pytest

from geomix.speech.normalisers import letters


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
