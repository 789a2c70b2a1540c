"""Regular expressions whose worst case is computed before they run.

Python's matcher goes back over its choices, so that a few characters can take it years. The number of its choices is
bounded from the expression and the length of the text, and counted as steps; what is beyond the limit does not run.
"""

import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Set
from math import comb, log2
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, NamedTuple

from tsr_gym_envs.shell.meter import Meter

# Choices of the matcher that cost one step; it makes 20 to 100 of them in a microsecond.
CHOICES_PER_STEP = 250
_MOST_FACTORS = 60


class Choices(NamedTuple):
    """A bound on the ways to match a text of n characters: ``comb(n + degree, degree) * 2 ** (bits + rate * n)``.

    Attributes:
        degree: Repeats that can end at any place.
        bits: Choices of a fixed number.
        rate: Choices at every letter, as of a repeat inside of a repeat.
        scans: Repeats that can end at one place alone, but read the text up to it.
    """

    degree: int = 0
    bits: float = 0.0
    rate: float = 0.0
    scans: int = 0

    def cost(self, length: int, *, is_anchored: bool = False) -> float:
        """Return the bound over all places of a text where a match may begin, at most ``2 ** 60``.

        Args:
            length: The characters of the text.
            is_anchored: Whether a match begins only where the text begins.
        """
        factors = max(self.degree + min(self.scans, 1), 1) + (not is_anchored)
        ways = comb(length + factors, factors) if factors <= _MOST_FACTORS else 1 << 60
        return float(min(ways * 2 ** min(self.bits + self.rate * length, 60), 1 << 60))


def _in_a_row(parts: list[Choices]) -> Choices:
    return Choices(*(sum(numbers) for numbers in zip(Choices(), *parts, strict=True)))


def _repeated(low: int, high: Any, parts: Any, after: int | None) -> Choices:
    """Return the choices of a repeat: how often, and those of every turn."""
    is_open = high == parser.MAXREPEAT
    if len(parts) == 1 and after is not None and _excludes(parts[0], after):
        # It can end at the next letter alone.
        return Choices(scans=1)
    item = choices_of(parts, after if high == 1 else _beginning(parts))
    if item[:3] == (0, 0, 0):
        # A turn of several parts can also end its last part early.
        open_ends = Choices(degree=1 + min(item.scans, 1), scans=item.scans)
        return open_ends if is_open else Choices(item.scans, log2(high - low + 1), 0, item.scans)
    if is_open:
        # The text is divided into turns, and every turn again.
        return Choices(rate=2 * (1 + item.degree + item.bits + item.rate), scans=item.scans)
    bits = item.bits * high + log2(high - low + 1)
    return Choices((item.degree + bool(item.rate)) * high, bits, item.rate, item.scans)


def _beginning(parts: Any) -> int | None:
    """Return the letter with which a text of these parts begins; None if it is not known."""
    while len(parts) and str(parts[0][0]) == "SUBPATTERN":
        parts = parts[0][1][-1]
    return int(parts[0][1]) if len(parts) and str(parts[0][0]) == "LITERAL" else None


def _excludes(part: Any, letter: int) -> bool:
    """Return whether a letter, in either case, is none of those that a part matches; False where that is not known."""
    operator, details = str(part[0]), part[1]
    cases = {ord(case) for case in (chr(letter).lower(), chr(letter).upper(), chr(letter)) if len(case) == 1}
    if operator == "LITERAL":
        return details not in cases
    if operator != "IN":
        return False
    kinds = {"CATEGORY_DIGIT": str.isdigit, "CATEGORY_SPACE": str.isspace}
    is_negated, holds = False, False
    for name, value in details:
        match str(name):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                holds |= value in cases
            case "RANGE":
                holds |= any(value[0] <= case <= value[1] for case in cases)
            case "CATEGORY" if str(value) == "CATEGORY_WORD":
                holds |= chr(letter).isalnum() or letter == ord("_")
            case "CATEGORY" if str(value) in kinds:
                holds |= kinds[str(value)](chr(letter))
            case _:
                return False
    return holds is is_negated


def _branched(alternatives: list[Any], after: int | None) -> Choices:
    """Return the choices of alternatives, which are none between those that begin with different letters."""
    firsts = [parts[0] if len(parts) else None for parts in alternatives]
    letters = {first[1] for first in firsts if first and str(first[0]) == "LITERAL"}
    choices = [choices_of(parts, after) for parts in alternatives]
    most = Choices(*(max(numbers) for numbers in zip(*choices, strict=True)))
    return most if len(letters) == len(alternatives) else most._replace(bits=most.bits + log2(len(alternatives)))


def choices_of(parts: Any, after: int | None = None) -> Choices:
    """Return the bound of a parsed expression.

    Args:
        parts: The parts of the expression, as Python's parser returns them.
        after: The letter that must follow; None where none must, or it is not known.
    """
    rows = []
    for place, (operator, details) in enumerate(parts):
        following = parts[place + 1] if place + 1 < len(parts) else None
        letter = after if following is None else _beginning([following])
        match str(operator):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inner = details
                rows.append(_repeated(low, high, inner, letter))
            case "BRANCH":
                rows.append(_branched(details[1], letter))
            case "SUBPATTERN":
                rows.append(choices_of(details[-1], letter))
            case "ASSERT" | "ASSERT_NOT":
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
        parts = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self._choices = choices_of(parts)
        first = [(str(operator), str(details)) for operator, details in parts[:1]]
        self._is_anchored = first == [("AT", "AT_BEGINNING")] and not pattern.flags & re.MULTILINE
        self.pattern, self.flags, self.groups = pattern.pattern, pattern.flags, pattern.groups
        self.groupindex = pattern.groupindex

    def _allow(self, text: str) -> None:
        self._meter.charge(1 + self._choices.cost(len(text), is_anchored=self._is_anchored) / CHOICES_PER_STEP)

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

    def of_text(name: str) -> Callable[..., Any]:
        return lambda pattern, text, flags=0: methodcaller(name, text)(compiled(pattern, flags))

    def split(pattern: Any, text: str, maxsplit: int = 0, flags: int = 0) -> Any:
        return compiled(pattern, flags).split(text, maxsplit)

    def sub(pattern: Any, new: Any, text: str, count: int = 0, flags: int = 0) -> Any:
        return compiled(pattern, flags).sub(new, text, count)

    def subn(pattern: Any, new: Any, text: str, count: int = 0, flags: int = 0) -> Any:
        return compiled(pattern, flags).subn(new, text, count)

    functions = (split, sub, subn)
    return SimpleNamespace(
        **{name: value for name, value in vars(re).items() if not name.startswith("_")}
        | {name: of_text(name) for name in ("search", "match", "fullmatch", "findall", "finditer")}
        | {function.__name__: function for function in functions}
        | {"compile": compiled},
    )
