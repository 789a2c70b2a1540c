"""Fingerprints of values of any kind: equal values have equal ones, here and in other processes.

Objects count by what they hold, arrays of any library by their numbers, and code by its name alone.
"""

import inspect
import itertools
from collections import deque
from contextlib import suppress
from enum import Enum
from functools import lru_cache, partial
from hashlib import blake2b
from types import MemberDescriptorType
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.random_stream import RandomStream, canonical
from tsr_gym.snapshots import Snapshot
from tsr_gym.testing.global_state import GENERATORS, position_of_any

ATOMS = (type(None), bool, int, float, complex, str, bytes, np.generic, Enum)
EVERYTHING = 10**9


def is_code(value: Any) -> bool:
    """Return whether a value is a class, module or function, which no episode changes."""
    return (
        isinstance(value, type | property | staticmethod | classmethod | partial)
        or (callable(value) and not isinstance(value, GENERATORS))
        or inspect.ismodule(value)
    )


def fingerprint(value: Any, max_visits: int = EVERYTHING, max_items: int = EVERYTHING) -> str:
    """Return a digest of what a value holds, down to numbers and text.

    Args:
        value: Anything.
        max_visits: How many objects and containers are looked into; further ones count by their class.
        max_items: How many items of a container are looked at; of longer ones, the first eight and the last.
    """
    walk = _Walk(max_visits, max_items)
    return blake2b(repr(walk.plain(value)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class _Walk:
    """A walk through a value, to something whose representation changes when the value does."""

    def __init__(self, visits: int, items: int) -> None:
        self.visits = visits
        self.items = items
        self.seen: dict[int, Any] = {}

    def plain(self, value: Any) -> Any:
        if isinstance(value, ATOMS):
            return value
        if (array := _as_array(value)) is not None:
            return type(value).__qualname__, array.shape, array.dtype.str, blake2b(array.tobytes()).hexdigest()
        if isinstance(value, RandomStream):
            return canonical(value.position) if value.seeded else None
        if isinstance(value, GENERATORS):
            return type(value).__qualname__, self.plain(position_of_any(value))
        if isinstance(value, itertools.count):
            return repr(value)
        self.visits -= 1
        if self.visits < 0 or id(value) in self.seen or isinstance(value, gym.Env | gym.Space) or is_code(value):
            return type(value).__qualname__
        # Kept alive while the walk goes on, because the next object could get the same address.
        self.seen[id(value)] = value
        return type(value).__qualname__, self._parts(value)

    def _parts(self, value: Any) -> Any:
        if isinstance(value, Snapshot):
            value = value.layers
        if isinstance(value, set | frozenset):
            return len(value), sorted(repr(self.plain(item)) for item in value) if len(value) <= self.items else None
        if isinstance(value, dict):
            value = list(value.items())
        if isinstance(value, list | tuple | deque):
            ends = value if len(value) <= self.items else [*itertools.islice(value, 8), value[-1]]
            return len(value), [self.plain(item) for item in ends]
        return [(name, self.plain(item)) for name, item in attributes(value)]


@lru_cache(maxsize=1024)
def _is_array(cls: Any) -> bool:
    """Return whether a class is an array of some library: numpy, jax, torch."""
    return any("__array__" in vars(base) for base in cls.__mro__)


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array of any library as numpy's, None where the value is none, or none of numbers or text."""
    kind: Any = type(value)
    if not _is_array(kind):
        return None
    with suppress(TypeError, ValueError, RuntimeError):
        array = np.asarray(value)
        return None if array.dtype.hasobject else array
    return None


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object, those in slots included."""
    found = []
    for cls in type(value).__mro__:
        for name in vars(cls).get("__slots__", ()):
            if isinstance(vars(cls).get(name), MemberDescriptorType):
                with suppress(AttributeError):
                    found.append((name, vars(cls)[name].__get__(value)))
    with suppress(TypeError):
        found += vars(value).items()
    return found
