"""The rules of Countdown: combinations of two numbers, expressions, and which numbers can be reached at all.

All results are whole numbers from 0 to `MOST`. Numbers stand in ascending order, so that equal positions are equal
values.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

# The largest number that may stand anywhere, so that texts have few different words.
MOST = 199
OPERATORS = ("+", "-", "*", "/")
_STEP = re.compile(r"\s*([0-9]{1,3})\s*([-+*/])\s*([0-9]{1,3})\s*")
_TOKENS = re.compile(r"\s*([0-9]{1,3}(?![0-9])|[-+*/()])")
# Characters and open brackets of an expression.
_MAX_EXPRESSION, _MAX_DEPTH = 120, 12


class CountdownState(NamedTuple):
    """The state of an episode.

    Attributes:
        numbers: The numbers that are left, ascending.
        target: The number to reach.
        last: The last combination or expression with its result, "" at the beginning.
    """

    numbers: tuple[int, ...]
    target: int
    last: str = ""


def combined(left: int, operator: str, right: int) -> int | None:
    """Return the result of a combination; None if it is not a whole number from 0 to `MOST`.

    >>> combined(8, "/", 3), combined(3, "-", 8), combined(8, "*", 3), combined(8, "/", 0)
    (None, None, 24, None)
    """
    if operator == "/":
        return left // right if right and left % right == 0 else None
    result = left + right if operator == "+" else left - right if operator == "-" else left * right
    return result if 0 <= result <= MOST else None


def without(numbers: tuple[int, ...], *used: int) -> tuple[int, ...] | None:
    """Return the numbers that are left after some were used; None if they are not all there."""
    left = list(numbers)
    for number in used:
        if number not in left:
            return None
        left.remove(number)
    return tuple(left)


def step_of(text: str, numbers: tuple[int, ...]) -> tuple[tuple[int, ...], str] | str:
    """Return the numbers after a combination and its text with the result; a reason if it is invalid.

    >>> step_of("8*3", (3, 5, 8))
    ((5, 24), '8 * 3 = 24')
    >>> step_of("5 / 3", (3, 5, 8)), step_of("5 + 5", (3, 5, 8))
    ('5 / 3 is no whole number from 0 to 199', 'there are no 5 and 5 among 3 5 8')
    """
    match = _STEP.fullmatch(text)
    if match is None:
        return f"{text[:60]!r} is no combination: write two numbers and one of + - * /, such as 8 * 3"
    left, operator, right = int(match[1]), match[2], int(match[3])
    rest = without(numbers, left, right)
    if rest is None:
        return f"there are no {left} and {right} among {' '.join(map(str, numbers))}"
    result = combined(left, operator, right)
    if result is None:
        return f"{left} {operator} {right} is no whole number from 0 to {MOST}"
    return tuple(sorted((*rest, result))), f"{left} {operator} {right} = {result}"


def steps(numbers: tuple[int, ...]) -> Iterator[tuple[int, str, int, int]]:
    """Yield the combinations that are possible: the larger number, the operator, the smaller one, and the result."""
    for small, large in sorted(set(combinations(numbers, 2))):
        for operator in OPERATORS:
            result = combined(large, operator, small)
            if result is not None:
                yield large, operator, small, result


@lru_cache(maxsize=200_000)
def values(numbers: tuple[int, ...]) -> frozenset[int]:
    """Return every number that all of some numbers can be combined to."""
    if len(numbers) == 1:
        return frozenset(numbers)
    first, *others = numbers
    results: set[int | None] = set()
    # Every split into two parts, the first number on the left.
    for picks in product((False, True), repeat=len(others)):
        if all(picks):
            continue
        left = (first, *(other for other, pick in zip(others, picks, strict=True) if pick))
        right = tuple(other for other, pick in zip(others, picks, strict=True) if not pick)
        for pair in product(values(left), values(right)):
            small, large = sorted(pair)
            results.update(combined(large, operator, small) for operator in OPERATORS)
    return frozenset(result for result in results if result is not None)


@lru_cache(maxsize=200_000)
def distance(numbers: tuple[int, ...], target: int, use_all: bool) -> int | None:
    """Return the fewest combinations that reach the target; None if none do."""
    sizes = [len(numbers)] if use_all else range(1, len(numbers) + 1)
    for size in sizes:
        if any(target in values(part) for part in set(combinations(numbers, size))):
            return size - 1
    return None


def best_step(numbers: tuple[int, ...], target: int, use_all: bool) -> tuple[int, str, int, int] | None:
    """Return the first combination of a shortest way to the target; None where there is no way, or none is needed."""
    fewest = distance(numbers, target, use_all)
    if not fewest:
        return None
    for step in steps(numbers):
        if distance(after(numbers, step), target, use_all) == fewest - 1:
            return step
    return None


def after(numbers: tuple[int, ...], step: tuple[int, str, int, int]) -> tuple[int, ...]:
    """Return the numbers after a combination that is possible."""
    large, _, small, result = step
    return tuple(sorted((*(without(numbers, large, small) or ()), result)))


@lru_cache(maxsize=200_000)
def random_success(numbers: tuple[int, ...], target: int, use_all: bool, turns: int) -> float:
    """Return the probability that uniform random combinations reach the target within some turns."""
    if distance(numbers, target, use_all) == 0:
        return 1.0
    choices = list(steps(numbers)) if turns else []
    if not choices or distance(numbers, target, use_all) is None:
        return 0.0
    chances = [random_success(after(numbers, step), target, use_all, turns - 1) for step in choices]
    return sum(chances) / len(chances)


def closeness(numbers: tuple[int, ...], target: int, use_all: bool) -> float:
    """Return how near the numbers are to the target, from what is shown: 1 if it is reached, else from -1 to 0.

    It is minus the difference of the target and the nearest number, or result of a combination, as a share of `MOST`;
    with `use_all`, of a result where two numbers are left, and of the number where one is.

    >>> closeness((24,), 24, True), closeness((4, 7), 24, True), closeness((3, 5), 199, True)
    (1.0, -0.020100502512562814, -0.9246231155778895)
    """
    if numbers == (target,) or (target in numbers and not use_all):
        return 1.0
    results = [result for *_, result in steps(numbers)]
    # Of two numbers none can be left.
    nearest = min(abs(target - value) for value in (results if use_all and len(numbers) == 2 else (*numbers, *results)))
    return -nearest / MOST if results else -1.0


def best_expression(numbers: tuple[int, ...], target: int, use_all: bool) -> str | None:
    """Return an expression for the target; None if no expression has it.

    >>> best_expression((3, 5, 8), 16, True)
    '(8 + (5 + 3))'
    """
    texts = [(number, str(number)) for number in numbers]
    if distance(numbers, target, use_all) is None:
        return None
    while (step := best_step(numbers, target, use_all)) is not None:
        large, operator, small, result = step
        parts = []
        for value in (large, small):
            part = next(pair for pair in texts if pair[0] == value)
            texts.remove(part)
            parts.append(part[1])
        texts.append((result, f"({parts[0]} {operator} {parts[1]})"))
        numbers = after(numbers, step)
    return next(text for value, text in texts if value == target)


def expressions(numbers: tuple[int, ...], most: int = 64) -> tuple[str, ...]:
    """Return some valid expressions of all numbers, from the largest one to the smallest."""
    results = []
    for operators in product(OPERATORS, repeat=len(numbers) - 1):
        value, text = numbers[-1], str(numbers[-1])
        for operator, number in zip(operators, numbers[-2::-1], strict=True):
            result = combined(value, operator, number)
            if result is None:
                break
            value, text = result, f"({text} {operator} {number})"
        else:
            results.append(text)
        if len(results) == most:
            break
    return tuple(results)


def evaluated(text: str, numbers: tuple[int, ...], use_all: bool) -> int | str:
    """Return the value of an expression; a reason if it is invalid. Nothing is executed.

    >>> evaluated("(8 - 5) * 3", (3, 5, 8), True), evaluated("8 + 3", (3, 5, 8), False)
    (9, 11)
    >>> evaluated("8 + 3", (3, 5, 8), True)
    'the expression must use each of 3 5 8 once'
    """
    try:
        parser = _Parser(text)
        value = parser.sum()
        parser.end()
    except _Invalid as error:
        return str(error)
    left = without(numbers, *parser.used)
    if left is None or (use_all and left):
        return f"the expression must use {'each' if use_all else 'some'} of {' '.join(map(str, numbers))} once"
    return value


class _Invalid(Exception):
    """A text that is no expression."""


class _Parser:
    """A parser by recursive descent, with bounds on length and depth."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_EXPRESSION:
            raise _Invalid(f"an expression has at most {_MAX_EXPRESSION} characters")
        self.tokens = _TOKENS.findall(text)
        if "".join(text.split()) != "".join(self.tokens):
            raise _Invalid(f"{text[:60]!r} is no expression of numbers, + - * / and brackets")
        self.used: list[int] = []
        self.depth = 0

    def end(self) -> None:
        """Raise an error unless all was read."""
        if self.tokens:
            raise _Invalid(f"there is a {self.tokens[0]!r} too many")

    def sum(self) -> int:
        """Return the value of products that are added and subtracted."""
        value = self.product()
        while self.tokens and self.tokens[0] in "+-":
            value = self.apply(value, self.tokens.pop(0), self.product())
        return value

    def product(self) -> int:
        """Return the value of numbers that are multiplied and divided."""
        value = self.number()
        while self.tokens and self.tokens[0] in "*/":
            value = self.apply(value, self.tokens.pop(0), self.number())
        return value

    def number(self) -> int:
        """Return the value of a number or a bracket."""
        token = self.tokens.pop(0) if self.tokens else ""
        if token.isdecimal():
            self.used.append(int(token))
            return int(token)
        if token != "(" or self.depth == _MAX_DEPTH:
            raise _Invalid(f"wanted a number, got {token!r}" if token != "(" else "there are too many brackets")
        self.depth += 1
        value = self.sum()
        self.depth -= 1
        if not self.tokens or self.tokens.pop(0) != ")":
            raise _Invalid("a bracket is not closed")
        return value

    def apply(self, left: int, operator: str, right: int) -> int:
        """Return the result of a combination."""
        result = combined(left, operator, right)
        if result is None:
            raise _Invalid(f"{left} {operator} {right} is no whole number from 0 to {MOST}")
        return result
