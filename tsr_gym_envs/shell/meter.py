"""Limits of a command, as counts and sizes: no clock decides what a command may do.

The interpreter's code is instrumented (`closed.py`) to call these methods in every loop and function, and before every
operation whose result may be much larger than its operands.
"""

import builtins
import re
from collections.abc import Callable
from operator import methodcaller
from typing import Any, NoReturn

import numpy as np

# Bits of the largest whole number; a shell's numbers have 64.
MAX_BITS = 4096
# Scripts inside of scripts: substitutions, sourced files, shells in shells.
MAX_NESTED = 20
# Making a text of so many characters costs a step.
CHARACTERS_PER_STEP = 256
_LONG_NUMBER = re.compile(r"\d{6,}")


class Exhausted(BaseException):
    """A command reached a limit. Not an Exception, because the interpreter swallows those in places."""


class Dice:
    """The interpreter's random numbers, with those methods of Python's ``random`` that it uses.

    Args:
        seed: The seed; a generator without one is seeded from the state of the episode.
    """

    def __init__(self, seed: object = 0) -> None:
        self.seed(seed)

    def seed(self, seed: object = 0) -> None:
        """Start the numbers of a seed."""
        self._generator = np.random.default_rng(list(str(seed).encode("utf-8", "surrogatepass")))

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        return float(self._generator.random())

    def randint(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        return int(self._generator.integers(low, high + 1))

    def shuffle(self, items: list[Any]) -> None:
        """Reorder a list."""
        items[:] = [items[int(place)] for place in self._generator.permutation(len(items))]

    def choice(self, items: list[Any]) -> Any:
        """Return an item of a list."""
        return items[self.randint(0, len(items) - 1)]

    def sample(self, items: list[Any], num: int) -> list[Any]:
        """Return different items of a list."""
        return [items[int(place)] for place in self._generator.permutation(len(items))[:num]]


class Meter:
    """Counts what the running command does.

    Attributes:
        steps: Steps that are left: iterations of loops, calls of functions, and the sizes of texts.
        most: Most characters of one text.
        draws: How many generators were seeded from the state.
        seed: The seed of the state.
    """

    def __init__(self) -> None:
        self.begin(0, 0, 0, 0)

    def begin(self, steps: int, most: int, seed: int, draws: int) -> None:
        """Start the count of a command."""
        self.steps, self.most, self.seed, self.draws, self._nested = steps, most, seed, draws, 0

    def nested(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of the interpreter that runs a script, with a limit of scripts inside of scripts."""

        async def counted(interpreter: Any, script: Any) -> Any:
            self._nested += 1
            if self._nested > MAX_NESTED:
                self.stop(f"more than {MAX_NESTED} scripts inside of scripts")
            try:
                return await execute(interpreter, script)
            finally:
                self._nested -= 1

        return counted

    def tick(self) -> bool:
        """Count a step and return True.

        Raises:
            Exhausted: No step is left.
        """
        self.steps -= 1
        if self.steps < 0:
            self.stop("too many steps")
        return True

    def stop(self, reason: str) -> NoReturn:
        """End the command. Nothing that the interpreter does after the error takes another step."""
        self.steps = -1
        raise Exhausted(reason)

    def charge(self, steps: float) -> None:
        """Count several steps."""
        self.steps -= int(min(steps, 1 << 62))
        if self.steps < 0:
            self.stop("too many steps")

    def size(self, size: int) -> None:
        """Count the making of a text of a size, and refuse one that is too long."""
        if size > self.most:
            self.stop(f"a text of more than {self.most} characters")
        self.charge(size // CHARACTERS_PER_STEP)

    def dice(self, seed: object = None) -> Dice:
        """Return a generator: that of a seed, or the next one of the state."""
        if seed is None:
            self.draws += 1
            return Dice(f"{self.seed} {self.draws}")
        return Dice(seed)

    def grow(self, left: Any, right: Any) -> Any:
        """Return `right`, if ``left + right`` is small enough."""
        if isinstance(left, str | bytes | list) and isinstance(right, str | bytes | list):
            self.size(len(left) + len(right))
        return right

    def multiply(self, left: Any, right: Any) -> Any:
        """Return `right`, if ``left * right`` is small enough."""
        if isinstance(left, int) and isinstance(right, int):
            self._bits(left.bit_length() + right.bit_length())
        elif isinstance(left, str | bytes | list) and isinstance(right, int):
            self.size(len(left) * max(right, 0))
        elif isinstance(right, str | bytes | list) and isinstance(left, int):
            self.size(len(right) * max(left, 0))
        return right

    def power(self, left: Any, right: Any) -> Any:
        """Return `right`, if ``left ** right`` is small enough."""
        if isinstance(left, int) and isinstance(right, int):
            self._bits(left.bit_length() * max(right, 0))
        return right

    def shift(self, left: Any, right: Any) -> Any:
        """Return `right`, if ``left << right`` is small enough."""
        self._bits(left.bit_length() + right)
        return right

    def fill(self, left: Any, right: Any) -> Any:
        """Return `right`, if no width in ``left % right`` is large."""
        if isinstance(left, str | bytes):
            text = left if isinstance(left, str) else left.decode("latin-1")
            if "*" in text:
                for part in right if isinstance(right, tuple) else (right,):
                    self.width(part)
            self._digits(text)
        return right

    def width(self, value: Any) -> Any:
        """Return the width of a format, if it is small enough."""
        if isinstance(value, int) and value > self.most:
            self.stop(f"a width of more than {self.most}")
        if isinstance(value, str):
            self._digits(value)
        return value

    def call(self, owner: Any, name: str, *args: Any, **named: Any) -> Any:
        """Return the result of a method whose result may be long."""
        if isinstance(owner, str | bytes) and args:
            first = args[0]
            if name == "join":
                args = (parts := list(first),)
                self.size(sum(map(len, parts)) + len(owner) * len(parts))
            elif name == "replace" and type(first) is type(owner):
                self.size(len(owner) + owner.count(first) * len(args[1]))  # type: ignore[arg-type]
            elif name == "expandtabs":
                self.size(len(owner) * max(int(first), 1))
            elif name == "format":
                self._digits(str(owner))
            elif isinstance(first, int):
                self.size(first)
        return methodcaller(name, *args, **named)(owner)

    def range(self, *bounds: int) -> Any:
        """Return Python's range, if it has no more members than steps are left."""
        numbers = builtins.range(*bounds)
        if numbers and abs(numbers[-1] - numbers[0]) // abs(numbers.step) > max(self.steps, self.most):
            self.stop("a range of too many numbers")
        return numbers

    def bytes_of(self, cls: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function like ``bytes`` that refuses a large size."""
        return lambda *args, **named: cls(*map(self.width, args), **named)

    def _digits(self, text: str) -> None:
        if any(int(number) > self.most for number in _LONG_NUMBER.findall(text)):
            self.stop(f"a width of more than {self.most}")

    def _bits(self, bits: int) -> None:
        if bits > MAX_BITS:
            self.stop(f"a number of more than {MAX_BITS} bits")
