"""What the objects of a stack hold beside their snapshot: the evidence with which a failed check names its culprit.

Nothing here fails on its own account except generators that no snapshot can reach.
"""

import functools
import inspect
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from hashlib import blake2b
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.random_stream import RandomStream, canonical
from tsr_gym.snapshots import Snapshot
from tsr_gym.testing.facts import layers_of
from tsr_gym.testing.global_state import GENERATORS, position_of_any

MAX_VISITS = 2_000
MAX_ITEMS = 256
_ATOMS = (type(None), bool, int, float, complex, str, bytes, np.generic, Enum)
# Gymnasium's own bookkeeping, which says nothing about an episode, and the state that facts compare already.
_BOOKKEEPING = frozenset(
    {
        "env",
        "spec",
        "metadata",
        "action_space",
        "observation_space",
        "_action_space",
        "_observation_space",
        "_metadata",
        "_cached_spec",
        "_episode",
        "_saved_kwargs",
        "_np_random_seed",
    }
)
_FOREIGN = ("gymnasium.", "tsr_gym.")


class Place(NamedTuple):
    """Somewhere that a stack can keep things."""

    name: str
    value: Any
    foreign: bool


Marks = dict[str, tuple[str, str, bool]]


def marks_of(env: gym.Env[Any, Any]) -> Marks:
    """Return fingerprint, short text and ownership of everything that a stack's objects and functions hold."""
    return {place.name: (_fingerprint(place.value), _short(place.value), place.foreign) for place in _places(env)}


def changes(before: Marks, after: Marks) -> list[str]:
    """Return the places whose content differs, in words; those of Gymnasium and tsr-gym where there are no others."""
    found = [
        (after[name][2], f"{name} ({before[name][1]} then, {after[name][1]} now)")
        for name in before
        if name in after and before[name][0] != after[name][0]
    ]
    own = [words for foreign, words in found if not foreign]
    return own or [words for _, words in found]


def hidden_generators(env: gym.Env[Any, Any]) -> list[str]:
    """Return the generators in closures, module globals and class attributes, which no snapshot can reach."""
    return [
        place.name for place in (*_class_places(env), *_function_places(env)) if isinstance(place.value, GENERATORS)
    ]


def _places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for layer in layers_of(env):
        cls = type(layer)
        for name, value in vars(layer).items():
            if name not in _BOOKKEEPING:
                yield Place(f"{cls.__qualname__}.{name}", value, _is_foreign(cls))
    yield from _class_places(env)
    yield from _function_places(env)


def _class_places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for cls in _classes(env):
        for name, value in vars(cls).items():
            if not (name.startswith("__") or name in _BOOKKEEPING or _is_code(value)):
                yield Place(f"{cls.__qualname__}.{name} (class attribute)", value, False)


def _function_places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for function in _functions(env):
        where = f"{function.__module__}.{function.__qualname__}"
        held = inspect.getclosurevars(function)
        for kind, names in (("closure variable", held.nonlocals), ("module global", held.globals)):
            for name, value in names.items():
                if not _is_code(value):
                    yield Place(f"{kind} {name} of {where}", value, False)


def _functions(env: gym.Env[Any, Any]) -> Iterator[FunctionType]:
    """Yield the functions of a stack's own classes and objects, and what they call in their own package."""
    waiting: list[Any] = [value for cls in _classes(env) for value in vars(cls).values()]
    waiting += [value for layer in layers_of(env) for value in vars(layer).values() if callable(value)]
    seen: set[int] = set()
    while waiting:
        for function in _unfolded(waiting.pop()):
            if id(function.__code__) in seen or f"{function.__module__}.".startswith(_FOREIGN):
                continue
            seen.add(id(function.__code__))
            yield function
            held = inspect.getclosurevars(function)
            package = function.__module__.partition(".")[0]
            waiting += [value for value in held.nonlocals.values() if callable(value)]
            waiting += [
                value
                for value in held.globals.values()
                if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == package
            ]


def _unfolded(value: Any) -> Iterator[FunctionType]:
    """Yield the Python functions inside a method, property, partial or decorated function."""
    if isinstance(value, staticmethod | classmethod | MethodType):
        value = value.__func__
    if isinstance(value, property):
        yield from (part for part in (value.fget, value.fset) if isinstance(part, FunctionType))
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _unfolded(part)
    elif callable(value) and not isinstance(value, type):
        value = inspect.unwrap(value)
        if isinstance(value, FunctionType):
            yield value


def _classes(env: gym.Env[Any, Any]) -> Iterator[type]:
    """Yield the classes of a stack that are neither Gymnasium's nor the core's."""
    seen = set()
    for layer in layers_of(env):
        for cls in type(layer).__mro__:
            if cls not in seen and not _is_foreign(cls):
                seen.add(cls)
                yield cls


def _is_foreign(cls: type) -> bool:
    return f"{cls.__module__}.".startswith((*_FOREIGN, "builtins.", "typing.", "abc."))


def _is_code(value: Any) -> bool:
    return (
        isinstance(value, type | property | staticmethod | classmethod | functools.partial)
        or (callable(value) and not isinstance(value, GENERATORS))
        or inspect.ismodule(value)
    )


def _fingerprint(value: Any) -> str:
    walk = _Walk(MAX_VISITS, set())
    return blake2b(repr(walk.plain(value)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class _Walk:
    """A bounded walk through a value of any kind, to something whose representation changes when the value does."""

    def __init__(self, visits: int, seen: set[int]) -> None:
        self.visits = visits
        self.seen = seen

    def plain(self, value: Any) -> Any:
        if isinstance(value, _ATOMS):
            return value
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return value.shape, value.dtype.str, blake2b(value.tobytes()).digest()
        if isinstance(value, RandomStream):
            return canonical(value.position) if value.seeded else None
        if isinstance(value, Snapshot):
            return value.digest
        if isinstance(value, GENERATORS):
            return repr(position_of_any(value))
        if isinstance(value, itertools.count):
            return repr(value)
        self.visits -= 1
        if self.visits < 0 or id(value) in self.seen or isinstance(value, gym.Env | gym.Space) or _is_code(value):
            return type(value).__qualname__
        self.seen.add(id(value))
        return type(value).__qualname__, self._parts(value)

    def _parts(self, value: Any) -> Any:
        if isinstance(value, set | frozenset):
            return len(value), sorted(repr(self.plain(item)) for item in value) if len(value) <= MAX_ITEMS else None
        if isinstance(value, dict):
            value = list(value.items())
        if isinstance(value, list | tuple | deque):
            ends = value if len(value) <= MAX_ITEMS else [*itertools.islice(value, 8), value[-1]]
            return len(value), [self.plain(item) for item in ends]
        return [(name, self.plain(item)) for name, item in _attributes(value)]


def _attributes(value: Any) -> list[tuple[str, Any]]:
    found = []
    for cls in type(value).__mro__:
        for name in vars(cls).get("__slots__", ()):
            if isinstance(vars(cls).get(name), MemberDescriptorType):
                with suppress(AttributeError):
                    found.append((name, vars(cls)[name].__get__(value)))
    with suppress(TypeError):
        found += vars(value).items()
    return found


def _short(value: Any) -> str:
    if isinstance(value, (*_ATOMS, tuple, list, dict, set, itertools.count)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    return f"a {type(value).__qualname__}"
