"""Texts cut to a length, in words, characters or whatever a function of your own counts."""

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from re import finditer
from typing import Any

from tsr_gym import ConfigError
from tsr_gym.optional import load


def _words(text: str) -> int:
    return len(text.split())


@lru_cache(maxsize=64)
def length_of(name: str) -> Callable[[str], int]:
    """Return the function that measures a text: ``"words"``, ``"characters"`` or ``"package.module:name"``.

    Raises:
        ConfigError: There is no such function.
    """
    known: dict[str, Callable[[str], int]] = {"words": _words, "characters": len}
    if name in known:
        return known[name]
    try:
        found: Any = load(name)
    except (ValueError, ImportError, KeyError) as error:
        raise ConfigError(f"wanted length of {sorted(known)} or 'package.module:name', got {name!r}") from error
    measure: Callable[[str], int] = found
    return measure


def shorten(text: str, limit: int | None, length: str = "words") -> str:
    """Return the longest beginning of a text that ends with a whole word and is not longer than `limit`.

    A first word that is too long by itself is cut inside. The measure may not fall as a text grows.

    >>> shorten("One two  three", 2), shorten("One two  three", 7, "characters"), shorten("Onetwo", 3, "characters")
    ('One two', 'One two', 'One')
    """
    if limit is None:
        return text
    measure = length_of(length)
    if measure(text) <= limit:
        return text
    ends = [word.end() for word in finditer(r"\S+", text)]
    kept = bisect_right(ends, limit, key=lambda end: measure(text[:end]))
    if kept:
        return text[: ends[kept - 1]]
    return text[: bisect_right(range(1, len(text)), limit, key=lambda end: measure(text[:end]))]
