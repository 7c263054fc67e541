"""Sentences of the demo corpus: the log of a small harbour, drawn from a context-free grammar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# an alternative that stands twice is twice as likely: so that the rarer words are said often enough to be learnt
GRAMMAR = {
    "entry": [
        "{vessel} {passed} {place} {when}",
        "{vessel} {passed} {place} with {number} {cargo} aboard",
        "{vessel} is {anchored} {near} {place} until {until}",
        "{wind} and {water} {near} {place}",
        "{wind} since {hour} and {water} {when}",
        "{sky} {when} and {water} {near} {place}",
        "{when} {person} saw {sight} {bearing} of {place}",
        "{when} {person} heard {sound} {near} {place}",
        "please {order} before {until}",
        "{person} asks you to {order} {when}",
        "{person} says {vessel} will {plan} {when}",
        "is {vessel} {anchored} {near} {place}",
        "the {gauge} reads {number} {unit} {trend}",
        "{number} {cargo} and {number} {cargo} for {person}",
        "{person} counted {number} {animal} {near} {place}",
        "the {repair} of {vessel} {state} and {person} {mends} it",
        "the {repair} {state} but {person} {mends} the {repair}",
    ],
    "vessel": ["the {paint} {boat}", "the {boat} {name}", "the {boat} {name}", "our {age} {boat}"],
    "boat": ["ferry", "trawler", "schooner", "tug", "cutter", "barge", "yacht", "lifeboat"],
    "name": ["perpetua", "marigold", "halcyon", "kestrel", "evening star", "juniper", "orlando"],
    "paint": ["blue", "red", "white", "green", "yellow", "black"],
    "age": ["old", "new", "little", "long", "narrow", "borrowed"],
    "passed": ["passed", "left", "reached", "rounded", "entered", "is leaving", "is crossing"],
    "place": [
        "the lighthouse",
        "the outer bar",
        "the stone bridge",
        "the northern channel",
        "the fish market",
        "the customs house",
        "the breakwater",
        "crooked island",
        "the chapel rock",
        "the lower basin",
        "gannet point",
        "the salt marsh",
        "the empty jetty",
    ],
    "near": ["near", "behind", "beyond", "below", "opposite", "outside"],
    "when": [
        "at dawn",
        "at {hour}",
        "this morning",
        "before noon",
        "after dark",
        "on {day}",
        "yesterday",
        "tonight",
        "just now",
        "twice on {day}",
    ],
    "day": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
    "hour": ["{count} o'clock", "half past {count}", "a quarter to {count}"],
    "count": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    "number": ["{count}", "{teen}", "{teen}", "{tens}", "{tens}", "{tens} {digit}", "{digit} hundred"],
    "teen": ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"],
    "tens": ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"],
    "digit": ["two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "cargo": [
        "barrels of oil",
        "crates of oranges",
        "sacks of flour",
        "boxes of herring",
        "bales of wool",
        "coils of rope",
        "planks of oak",
        "letters",
        "passengers",
        "bicycles",
        "lanterns",
    ],
    "anchored": ["anchored", "waiting", "aground", "drifting", "moored"],
    "until": ["high water", "low water", "sunset", "daybreak", "{day}", "the fog clears", "the wind turns", "{hour}"],
    "wind": ["{force} wind from the {compass}", "{force} gusts from the {compass}", "hardly any wind"],
    "force": ["light", "steady", "fresh", "strong", "bitter"],
    "compass": ["north", "south", "east", "west", "north east", "south west"],
    "water": ["a heavy swell", "short waves", "smooth water", "floating ice", "a rising tide", "a falling tide"],
    "sky": ["thick fog", "clear sky", "snow showers", "sunshine", "distant thunder"],
    "bearing": ["a mile {compass}", "{count} miles {compass}", "just {compass}"],
    "person": [
        "the pilot",
        "the harbour master",
        "captain oduya",
        "doctor lindqvist",
        "the night watchman",
        "my sister",
        "the diver",
        "the postman",
        "the carpenter",
        "nobody",
    ],
    "sight": ["a rocket", "{number} {animal}", "smoke", "a torn sail", "a strange glow"],
    "animal": ["seals", "cormorants", "dolphins", "gulls", "geese", "porpoises"],
    "sound": ["a bell", "a foghorn", "singing", "{animal}", "an accordion"],
    "order": [
        "light the lamp",
        "wind the clock",
        "lower the flag",
        "check the {gauge}",
        "call {person}",
        "tow {vessel}",
        "write to {person}",
        "keep clear of {place}",
        "feed the cat",
    ],
    "plan": ["sail for {place}", "stay {near} {place}", "take {number} {cargo}", "need a {repair}", "return"],
    "repair": ["rudder", "compass", "propeller", "anchor chain", "mainsail", "pump", "radio"],
    "gauge": ["barometer", "thermometer", "tide gauge", "depth sounder"],
    "unit": ["metres", "fathoms", "degrees"],
    "trend": ["and falling slowly", "and rising quickly", "and holding"],
    "state": ["is bent", "is missing", "makes a noise", "froze"],
    "mends": ["ordered", "forgot", "painted", "will look at", "complained about"],
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
