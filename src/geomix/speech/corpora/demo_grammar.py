"""Sentences of the demo corpus: radio traffic and the log of a small harbour, drawn from a context-free grammar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# what is said on the radio, most of the time: spelt names and figures, as sailors spell them
_RADIO = [
    "{call} {call} {call}",
    "{call} {call} {figure}",
    "{call} {figure} {figure}",
    "{call} {figure} calling {call} {figure}",
    "bearing {figure} {figure} {figure}",
    "position {figure} {figure} {figure} {figure}",
    "channel {figure} {figure} over",
    "berth {figure} for {call} {call}",
    "{boat} {call} {figure} over",
]
# an alternative that stands twice is twice as likely: so that the rarer words are said often enough to be learnt
GRAMMAR = {
    "entry": [
        *5 * _RADIO,
        "{vessel} {passed} {place}",
        "{vessel} {passed} {place}",
        "{vessel} is {anchored} {near} {place}",
        "{number} {cargo} for {person}",
        "{number} {cargo} and {number} {cargo}",
        "{wind}",
        "{water} {near} {place}",
        "{sky} {when}",
        "{person} saw {number} {animal}",
        "{person} saw {sight} {near} {place}",
        "{when} {person} heard {sound}",
        "please {order}",
        "{person} will {order} {when}",
        "the {gauge} reads {number} {unit}",
        "the {gauge} is {trend}",
        "the {part} {state}",
        "{person} {mends} the {part}",
        "{tide} at {hour}",
        "{tide} on {day}",
    ],
    "call": [
        *(
            "alfa",
            "bravo",
            "charlie",
            "delta",
            "echo",
            "foxtrot",
            "golf",
            "hotel",
            "india",
            "juliett",
            "kilo",
            "lima",
            "mike",
        ),
        *(
            "november",
            "oscar",
            "papa",
            "quebec",
            "romeo",
            "sierra",
            "tango",
            "uniform",
            "victor",
            "whiskey",
            "xray",
            "yankee",
            "zulu",
        ),
    ],
    "figure": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "vessel": ["the {paint} {boat}", "the {paint} {boat}", "the {boat} {name}", "our {age} {boat}"],
    "boat": ["ferry", "trawler", "schooner", "tug", "barge", "lifeboat"],
    "name": ["perpetua", "marigold", "halcyon", "kestrel", "orlando"],
    "paint": ["blue", "red", "white", "green", "yellow", "black"],
    "age": ["old", "new", "little", "long"],
    "passed": ["passed", "left", "reached", "entered", "is leaving", "is crossing"],
    "place": [
        "the lighthouse",
        "the harbour bar",
        "the stone bridge",
        "the northern channel",
        "the fish market",
        "the customs house",
        "the breakwater",
        "the island",
        "gannet point",
        "the empty jetty",
    ],
    "near": ["near", "behind", "beyond", "outside"],
    "when": ["at dawn", "at {hour}", "this morning", "before noon", "after dark", "on {day}", "yesterday", "tonight"],
    "day": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
    "hour": ["{count} o'clock", "half past {count}"],
    "count": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    "number": ["{count}", "{teen}", "{teen}", "{tens}", "{tens}", "{tens} {digit}"],
    "teen": ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"],
    "tens": ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"],
    "digit": ["two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "cargo": [
        "barrels of oil",
        "crates of oranges",
        "sacks of flour",
        "boxes of herring",
        "letters",
        "passengers",
        "bicycles",
        "lanterns",
    ],
    "anchored": ["anchored", "waiting", "aground", "drifting"],
    "wind": ["{force} wind from the {compass}", "{force} wind and {water}"],
    "force": ["light", "steady", "strong", "bitter"],
    "compass": ["north", "south", "east", "west"],
    "water": ["a heavy swell", "short waves", "smooth water", "floating ice"],
    "sky": ["thick fog", "clear sky", "snow showers", "sunshine", "distant thunder"],
    "person": [
        "the pilot",
        "the harbour master",
        "captain oduya",
        "doctor lindqvist",
        "the watchman",
        "my sister",
        "the postman",
        "the carpenter",
    ],
    "sight": ["a rocket", "smoke", "a torn sail"],
    "animal": ["seals", "cormorants", "dolphins", "gulls", "porpoises"],
    "sound": ["a bell", "a foghorn", "singing", "an accordion"],
    "order": [
        "light the lamp",
        "wind the clock",
        "lower the flag",
        "check the {gauge}",
        "call {person}",
        "tow {vessel}",
        "feed the cat",
    ],
    "part": ["rudder", "compass", "propeller", "anchor", "mainsail", "radio"],
    "gauge": ["barometer", "thermometer", "tide gauge"],
    "unit": ["metres", "fathoms", "degrees"],
    "trend": ["falling slowly", "rising quickly", "holding"],
    "tide": ["high water", "low water"],
    "state": ["is bent", "is missing", "makes a noise", "froze"],
    "mends": ["ordered", "forgot", "painted", "complained about"],
}


def sentence(random: np.random.Generator) -> str:
    """One sentence in upper case, words separated by single spaces."""

    def expand(symbol: str) -> str:
        choices = GRAMMAR[symbol]
        return re.sub(r"{(\w+)}", lambda match: expand(match[1]), choices[random.integers(len(choices))])

    return expand("entry").upper()


def vocabulary() -> set[str]:
    """All words the grammar can say."""
    return {word.upper() for choices in GRAMMAR.values() for c in choices for word in re.sub(r"{\w+}", " ", c).split()}
