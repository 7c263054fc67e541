"""Hypotheses as predicates over the arms' rates, written before a run and judged by code.

    predicate  := sum ('>' | '<') sum  |  'equal' '(' arm ',' arm ')'
    sum        := term (('+' | '-') term)*
    term       := factor (('*' | '/') factor)*
    factor     := number | arm | '-' factor | '(' sum ')'

An arm stands for its rate (WER in points, or perplexity). A side is linear in the arms, or a quotient of two linear
sides: x / y > c is judged as the contrast x - c y, given the sign of y. Nothing is evaluated as Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_TOKEN = r"(?:(?P<number>\d+(?:\.\d*)?|\.\d+)(?!\w)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[-+*/()<>,]))"


class PredicateError(ValueError):
    """A sentence that says what of an expression cannot be read."""


@dataclass(frozen=True)
class Linear:
    """sum_i coefficients[arm i] * rate of arm i + constant."""

    coefficients: Mapping[str, float] = field(default_factory=dict)
    constant: float = 0.0

    def plus(self, other: Linear, times: float = 1.0) -> Linear:
        """self + times * other."""
        arms = [*self.coefficients, *(a for a in other.coefficients if a not in self.coefficients)]
        total = {a: self.coefficients.get(a, 0.0) + times * other.coefficients.get(a, 0.0) for a in arms}
        return Linear({a: c for a, c in total.items() if c}, self.constant + times * other.constant)

    def times(self, factor: float) -> Linear:
        """factor * self."""
        return Linear().plus(self, factor)


@dataclass(frozen=True)
class Predicate:
    """`linear > 0`, or `linear / over > bound` where `over` is given, or equality of two arms where `equal` is."""

    text: str
    linear: Linear
    over: Linear | None = None
    bound: float = 0.0
    equal: bool = False

    @property
    def arms(self) -> list[str]:
        """The arms that it speaks of, in their order."""
        return list({**self.linear.coefficients, **(self.over.coefficients if self.over else {})})


def parse(text: str, arms: Iterable[str]) -> Predicate:
    """Read an expression; a `PredicateError` says what cannot be read, or which name is no arm of the study."""
    return _Parser(text, list(arms)).predicate()


@dataclass(frozen=True)
class _Quotient:
    above: Linear
    below: Linear


class _Parser:
    """Recursive descent over the grammar above."""

    def __init__(self, text: str, arms: list[str]) -> None:
        self.text, self.arms, self.tokens, self.at = text, arms, [], 0
        # the names of arms first, longest first: they may hold signs ("one-offset")
        names = "".join(rf"{re.escape(arm)}(?![\w.])|" for arm in sorted(arms, key=len, reverse=True))
        token = re.compile(rf"\s*(?:(?P<arm>{names}(?!))|" + _TOKEN + ")")
        position, whole = 0, text.rstrip()
        while position < len(whole):
            found = token.match(whole, position)
            if not found:
                raise PredicateError(f"{text!r}: {whole[position:].strip()[:12]!r} is no number, arm or sign")
            kind = found.lastgroup
            self.tokens.append(("name" if kind == "arm" else kind, found.group(kind)))
            position = found.end()

    def predicate(self) -> Predicate:
        """The whole expression."""
        if self.look() == ("name", "equal") and self.look(1) == ("sign", "("):
            found = self.equality()
        else:
            left = self.sum()
            kind, sign = self.take("a comparison", "<", ">")
            right = self.sum()
            found = self.compared(*((left, right) if sign == ">" else (right, left)), flipped=sign == "<")
        if self.at < len(self.tokens):
            raise PredicateError(
                f"{self.text!r}: nothing may follow before {self.tokens[self.at][1]!r}: one comparison each"
            )
        if not found.arms:
            raise PredicateError(f"{self.text!r}: speaks of no arm: compare the rates of arms, {', '.join(self.arms)}")
        return found

    def equality(self) -> Predicate:
        """equal(a, b)"""
        self.at += 2
        a = self.factor()
        self.take("a comma", ",")
        b = self.factor()
        self.take("a closing bracket", ")")
        return Predicate(self.text, self.linear(a).plus(self.linear(b), -1.0), equal=True)

    def compared(self, greater, less, *, flipped: bool) -> Predicate:
        """greater > less, either of them a quotient and the other then a number."""
        if isinstance(greater, _Quotient) == isinstance(less, _Quotient):
            return Predicate(self.text, self.linear(greater).plus(self.linear(less), -1.0))
        quotient, other = (greater, less) if isinstance(greater, _Quotient) else (less, greater)
        if other.coefficients:
            raise PredicateError(f"{self.text!r}: a quotient of arms is compared with a number")
        # x / y < c is -x / y > -c
        sign = 1.0 if quotient is greater else -1.0
        return Predicate(self.text, quotient.above.times(sign), quotient.below, sign * other.constant)

    def sum(self):
        """term (('+' | '-') term)*"""
        total = self.term()
        while self.look()[1] in ("+", "-"):
            sign = 1.0 if self.step()[1] == "+" else -1.0
            total = self.linear(total).plus(self.linear(self.term()), sign)
        return total

    def term(self):
        """factor (('*' | '/') factor)*"""
        product = self.factor()
        while self.look()[1] in ("*", "/"):
            operation, factor = self.step()[1], self.factor()
            if operation == "*":
                product, factor = self.linear(product), self.linear(factor)
                if product.coefficients and factor.coefficients:
                    raise PredicateError(f"{self.text!r}: a product of arms is not linear")
                scaled, scale = (product, factor) if product.coefficients else (factor, product)
                product = scaled.times(scale.constant)
            else:
                factor = self.linear(factor)
                if factor.coefficients:
                    product = _Quotient(self.linear(product), factor)
                elif not factor.constant:
                    raise PredicateError(f"{self.text!r}: divides by zero")
                else:
                    product = self.linear(product).times(1 / factor.constant)
        return product

    def factor(self):
        """number | arm | '-' factor | '(' sum ')'"""
        kind, value = self.step()
        if kind == "number":
            return Linear(constant=float(value))
        if kind == "name":
            if value not in self.arms:
                raise PredicateError(f"{self.text!r}: {value!r} is no arm of the configuration: {', '.join(self.arms)}")
            return Linear({value: 1.0})
        if value == "-":
            return self.linear(self.factor()).times(-1.0)
        if value == "(":
            inner = self.sum()
            self.take("a closing bracket", ")")
            return inner
        raise PredicateError(f"{self.text!r}: {value or 'the end'!r} stands where a number or an arm is expected")

    def linear(self, side) -> Linear:
        """A side that may not be a quotient."""
        if isinstance(side, _Quotient):
            raise PredicateError(f"{self.text!r}: a quotient of arms stands alone on its side, compared with a number")
        return side

    def look(self, ahead: int = 0) -> tuple[str, str]:
        """A token without taking it."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ("end", "")

    def step(self) -> tuple[str, str]:
        """Take a token."""
        token = self.look()
        self.at += 1
        return token

    def take(self, what: str, *signs: str) -> tuple[str, str]:
        """Take one of `signs`."""
        token = self.step()
        if token[1] not in signs:
            raise PredicateError(
                f"{self.text!r}: {what} ({' or '.join(signs)}) is expected at {token[1] or 'the end'!r}"
            )
        return token
