"""Regular expressions whose worst case is computed before they run.

Python's matcher goes back over its choices, so that a few characters can take it years. The number of its choices is
bounded from the expression and the length of the text, and counted as steps; what is beyond the limit does not run.
"""

import re
from collections.abc import Callable, Set
from math import log2
from re import _parser  # type: ignore[attr-defined]
from types import SimpleNamespace
from typing import Any, NamedTuple

from tsr_gym_envs.shell.meter import Meter

# Choices of the matcher that cost one step; it makes about 100 of them in a microsecond.
CHOICES_PER_STEP = 500


class Choices(NamedTuple):
    """A bound on the ways to match a text of n characters: ``(n + 1) ** degree * 2 ** (bits + rate * n)``."""

    degree: int = 0
    bits: float = 0.0
    rate: float = 0.0

    def cost(self, length: int) -> float:
        """Return the bound for every place of a text where a match may begin, at most ``2 ** 60``."""
        exponent = log2(length + 1) * (self.degree + 1) + self.bits + self.rate * length
        return float(2 ** min(exponent, 60))


def _in_a_row(parts: list[Choices]) -> Choices:
    return Choices(*(sum(numbers) for numbers in zip(Choices(), *parts, strict=True)))


def _repeated(low: int, high: Any, item: Choices) -> Choices:
    """Return the choices of a repeat: how often, and those of every turn."""
    is_open = high == _parser.MAXREPEAT
    if item == Choices():
        return Choices(degree=1) if is_open else Choices(bits=log2(high - low + 1))
    if is_open:
        return Choices(rate=max(1.0, item.bits) + item.rate)
    return Choices(item.degree * high, item.bits * high + log2(high - low + 1), item.rate)


def _branched(alternatives: list[list[Any]]) -> Choices:
    """Return the choices of alternatives, which are none between those that begin with different letters."""
    firsts = [parts[0] if parts else None for parts in alternatives]
    letters = {first[1] for first in firsts if first and str(first[0]) == "LITERAL"}
    choices = [choices_of(parts) for parts in alternatives]
    most = Choices(*(max(numbers) for numbers in zip(*choices, strict=True)))
    return most if len(letters) == len(alternatives) else most._replace(bits=most.bits + log2(len(alternatives)))


def choices_of(parts: Any) -> Choices:
    """Return the bound of a parsed expression."""
    rows = []
    for operator, details in parts:
        match str(operator):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inner = details
                rows.append(_repeated(low, high, choices_of(inner)))
            case "BRANCH":
                rows.append(_branched([list(alternative) for alternative in details[1]]))
            case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT":
                rows.append(choices_of(details[-1]))
            case "ATOMIC_GROUP":
                rows.append(choices_of(details))
            case "GROUPREF_EXISTS":
                rows.append(_in_a_row([choices_of(inner) for inner in details[1:] if inner]))
    return _in_a_row(rows)


class BoundedPattern:
    """A compiled expression that counts its worst case on each text before it runs."""

    def __init__(self, pattern: re.Pattern[str], meter: Meter) -> None:
        self._pattern, self._meter = pattern, meter
        self._choices = choices_of(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
        self.pattern, self.flags, self.groups = pattern.pattern, pattern.flags, pattern.groups
        self.groupindex = pattern.groupindex

    def _allow(self, text: str) -> None:
        self._meter.charge(1 + self._choices.cost(len(text)) / CHOICES_PER_STEP)

    def search(self, text: str, *bounds: int) -> re.Match[str] | None:
        """Search a text."""
        self._allow(text)
        return self._pattern.search(text, *bounds)

    def match(self, text: str, *bounds: int) -> re.Match[str] | None:
        """Match the beginning of a text."""
        self._allow(text)
        return self._pattern.match(text, *bounds)

    def fullmatch(self, text: str, *bounds: int) -> re.Match[str] | None:
        """Match a whole text."""
        self._allow(text)
        return self._pattern.fullmatch(text, *bounds)

    def findall(self, text: str, *bounds: int) -> list[Any]:
        """Return all matches."""
        self._allow(text)
        return self._pattern.findall(text, *bounds)

    def finditer(self, text: str, *bounds: int) -> Any:
        """Return an iterator of all matches."""
        self._allow(text)
        return self._pattern.finditer(text, *bounds)

    def split(self, text: str, maxsplit: int = 0) -> list[Any]:
        """Split a text."""
        self._allow(text)
        return self._pattern.split(text, maxsplit)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        """Replace all matches."""
        return self.subn(new, text, count)[0]

    def subn(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> tuple[str, int]:
        """Replace all matches, and return the text and the number of them."""
        self._allow(text)
        if isinstance(new, str) and len(new) > CHOICES_PER_STEP:
            self._meter.size(len(text) + sum(1 for _ in self._pattern.finditer(text)) * len(new))
        result, num = self._pattern.subn(new, text, count)
        self._meter.size(len(result))
        return result, num


def bounded_re(meter: Meter, trusted: Set[str]) -> SimpleNamespace:
    """Return a replacement of the module ``re``.

    Args:
        meter: Counts the steps.
        trusted: Expressions that are not counted: those in the interpreter's source.
    """

    def compiled(pattern: Any, flags: int = 0) -> Any:
        if isinstance(pattern, BoundedPattern):
            return pattern
        meter.tick()
        plain = re.compile(pattern, flags)
        return plain if pattern in trusted or isinstance(pattern, bytes | re.Pattern) else BoundedPattern(plain, meter)

    def search(pattern: Any, text: str, flags: int = 0) -> Any:
        return compiled(pattern, flags).search(text)

    def match(pattern: Any, text: str, flags: int = 0) -> Any:
        return compiled(pattern, flags).match(text)

    def fullmatch(pattern: Any, text: str, flags: int = 0) -> Any:
        return compiled(pattern, flags).fullmatch(text)

    def findall(pattern: Any, text: str, flags: int = 0) -> Any:
        return compiled(pattern, flags).findall(text)

    def finditer(pattern: Any, text: str, flags: int = 0) -> Any:
        return compiled(pattern, flags).finditer(text)

    def split(pattern: Any, text: str, maxsplit: int = 0, flags: int = 0) -> Any:
        return compiled(pattern, flags).split(text, maxsplit)

    def sub(pattern: Any, new: Any, text: str, count: int = 0, flags: int = 0) -> Any:
        return compiled(pattern, flags).sub(new, text, count)

    def subn(pattern: Any, new: Any, text: str, count: int = 0, flags: int = 0) -> Any:
        return compiled(pattern, flags).subn(new, text, count)

    functions = (search, match, fullmatch, findall, finditer, split, sub, subn)
    return SimpleNamespace(
        **{name: value for name, value in vars(re).items() if not name.startswith("_")}
        | {function.__name__: function for function in functions}
        | {"compile": compiled},
    )
