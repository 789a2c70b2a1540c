"""Addresses: sets whose order depends on where their elements are in memory.

A set iterates in the order of its hashes. An element whose class defines no hash has its address as hash, which no copy
and no replay repeats, so an environment with such a set continues differently after a restore. Dictionaries iterate in
the order of insertion, which copies and replays do repeat.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any
from weakref import ref

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import find
from tsr_gym.foreign.objects import ATOMS, attributes_of, is_handle, module_of, set_attributes

# Threads, processes and logs are not part of an episode, and some are kept in sets.
_MACHINERY = frozenset(
    {"asyncio", "concurrent", "logging", "multiprocessing", "selectors", "socket", "subprocess", "threading"}
)
_CLOSED = (type, ModuleType, BuiltinFunctionType, gym.Space, EnvSpec, np.generic, Enum)


def hashes_by_identity(value: Any) -> bool:
    """Return whether a copy of a value has another hash; classes and functions of modules are never copied."""
    cls: Any = type(value)
    if cls in ATOMS or isinstance(value, (*_CLOSED, np.dtype)):
        return False
    if isinstance(value, tuple | frozenset):
        return any(map(hashes_by_identity, value))
    if isinstance(value, ref):
        return hashes_by_identity(value())
    if isinstance(value, FunctionType):
        return find(value.__module__, value.__qualname__) is not value
    if isinstance(value, MethodType):
        return hashes_by_identity(value.__self__)
    if cls.__hash__ is object.__hash__:
        return not is_handle(value)
    return _hashes_what_differs(value, cls)


def _hashes_what_differs(value: Any, cls: Any) -> bool:
    """Return whether the hash that a class defines includes the address, or a field that hashes by identity."""
    held = attributes_of(value)
    names = vars(cls).get("__dataclass_fields__")
    if names and any(hashes_by_identity(held.get(name)) for name in names):
        return True
    # A twin with the same attributes has the same hash, unless the hash includes the address. An object of a class with
    # fields of C code, or one whose hash needs more than its attributes, has no such twin.
    try:
        twin = object.__new__(cls)
        set_attributes(twin, held)
        return bool(twin.__hash__() != value.__hash__())
    except Exception:
        return False


def is_unordered(value: Any) -> bool:
    """Return whether a value is a set of at least two elements that is ordered by their addresses."""
    if not isinstance(value, set | frozenset) or len(value) < 2:
        return False
    # Most sets hold numbers or text, and their types are compared faster than their elements.
    return not ATOMS.issuperset(map(type, value)) and any(map(hashes_by_identity, value))


def refusal_of(value: Any) -> str:
    """Return why an unordered set is refused, and the repair."""
    names = sorted({type(item).__qualname__ for item in value if hashes_by_identity(item)})
    return (
        f"a {type(value).__qualname__} of {len(value)} elements is ordered by the addresses of its {', '.join(names)} "
        "objects, which no restore repeats: keep them in a list or a dict, or give their class a __hash__ and an __eq__"
    )


Path = tuple[Any, Any] | None


def unordered_in(env: Any) -> str | None:
    """Return where an environment holds a set that is ordered by addresses, and why it is refused; None if nowhere."""
    seen: set[int] = {id(env)}
    # Values made on the way must live as long as `seen` holds their identity.
    waiting: list[tuple[Any, Path]] = [(env, None)]
    alive = []
    while waiting:
        value, path = waiting.pop()
        for name, part in _parts(value):
            if type(part) in ATOMS or id(part) in seen:
                continue
            if is_unordered(part):
                return f"the attribute {_written((path, name))} of {type(env).__qualname__}: {refusal_of(part)}"
            seen.add(id(part))
            alive.append(part)
            waiting.append((part, (path, name)))
    return None


def _written(path: Path) -> str:
    names = []
    while path is not None:
        path, name = path
        names.append(name if isinstance(name, str) else f"[{name[0]!r:.40}]")
    return ".".join(reversed(names)).replace(".[", "[")


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a value holds: attributes by their name, items by a tuple of their index or key."""
    if isinstance(value, _CLOSED) or is_handle(value) or module_of(type(value)).partition(".")[0] in _MACHINERY:
        return
    if isinstance(value, GeneratorType):
        yield from (value.gi_frame.f_locals if value.gi_frame else {}).items()
        return
    if isinstance(value, FunctionType | MethodType | partial | CellType):
        yield from _parts_of_code(value)
        return
    if isinstance(value, dict):
        yield from ((("key",), key) for key in value)
        yield from (((key,), item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from _numbered(value)
    elif isinstance(value, np.ndarray):
        yield from _numbered(value.ravel().tolist() if value.dtype == object else ())
    yield from attributes_of(value).items()


def _numbered(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    return (((number,), item) for number, item in enumerate(items))


def _parts_of_code(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, MethodType):
        yield from (("__self__", value.__self__), ("__func__", value.__func__))
    elif isinstance(value, partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, FunctionType):
        names = value.__code__.co_freevars
        yield from zip(names, value.__closure__ or (), strict=True)
        yield from (("__defaults__", value.__defaults__), ("__kwdefaults__", value.__kwdefaults__))
        yield from vars(value).items()
    else:
        # An empty cell raises ValueError.
        try:
            yield "value", value.cell_contents
        except ValueError:
            return
