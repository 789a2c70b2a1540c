"""What the objects of a stack hold beside their snapshot: the evidence with which a failed check names its culprit.

Nothing here fails on its own account except generators that no snapshot can reach.
"""

import functools
import inspect
import itertools
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.testing.facts import layers_of
from tsr_gym.testing.fingerprints import ATOMS, fingerprint, is_code
from tsr_gym.testing.global_state import GENERATORS

MAX_VISITS = 100
MAX_ITEMS = 64
MAX_SHOWN = 8
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
    return {
        place.name: (fingerprint(place.value, MAX_VISITS, MAX_ITEMS), _short(place.value), place.foreign)
        for place in _places(env)
    }


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
            if not (name.startswith("__") or name in _BOOKKEEPING or is_code(value)):
                yield Place(f"{cls.__qualname__}.{name} (class attribute)", value, False)


def _function_places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for function in _functions(env):
        where = f"{function.__module__}.{function.__qualname__}"
        held = inspect.getclosurevars(function)
        for kind, names in (("closure variable", held.nonlocals), ("module global", held.globals)):
            for name, value in names.items():
                if not is_code(value):
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


def _short(value: Any) -> str:
    if isinstance(value, (*ATOMS, itertools.count)) or _is_small(value):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    # The representations of foreign objects may be as long as the world that they belong to.
    size = f" of {len(value)}" if isinstance(value, tuple | list | dict | set | deque) else ""
    return f"a {type(value).__qualname__}{size}"


def _is_small(value: Any) -> bool:
    if not isinstance(value, tuple | list | dict | set) or len(value) > MAX_SHOWN:
        return False
    return all(isinstance(item, ATOMS) for item in (value.values() if isinstance(value, dict) else value))
