"""Frozen values made live again, and compared."""

import sys
import types
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import starmap
from math import copysign
from pickle import PicklingError, dumps
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign import generators
from tsr_gym.foreign.frozen import (
    ATOMS,
    Again,
    Closure,
    Freezer,
    Here,
    Members,
    Method,
    Objects,
    Opaque,
    OtherArray,
    Pairs,
    Randomness,
    Record,
    Reduced,
    Thing,
)
from tsr_gym.foreign.handles import is_handle
from tsr_gym.foreign.objects import set_attributes


class Thawer:
    """Makes live values of frozen ones, all of which may share objects.

    Args:
        stand_ins: What the stand-ins become.
        seed: None continues every generator where it stood; a number reseeds all of them.
    """

    def __init__(self, stand_ins: dict[Here, Any], seed: int | None = None) -> None:
        self.stand_ins = stand_ins
        self.seed = seed
        self.made: list[Any] = []
        self.num_reseeded = 0

    def thawed(self, value: Any) -> Any:
        """Return a frozen value as a live one of its own."""
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is tuple:
            return tuple([self.thawed(item) for item in value])
        thaw = _THAWERS.get(kind)
        # What is left is immutable, or is meant to be shared.
        return value if thaw is None else thaw(self, value)

    def _add(self, made: Any) -> Any:
        self.made.append(made)
        return made

    def _reserve(self) -> int:
        self.made.append(None)
        return len(self.made) - 1

    def _again(self, value: Again) -> Any:
        made = self.made[value.number] if 0 <= value.number < len(self.made) else None
        if made is None:
            raise SnapshotError("an object holds itself before it is made: it cannot be put back")
        return made

    def _list(self, value: list[Any]) -> Any:
        made = self._add([])
        made.extend([self.thawed(item) for item in value])
        return made

    def _deque(self, value: deque[Any]) -> Any:
        made = self._add(deque(maxlen=value.maxlen))
        made.extend([self.thawed(item) for item in value])
        return made

    def _dictionary(self, value: dict[Any, Any]) -> Any:
        made = self._add({})
        made.update(zip(value, [self.thawed(item) for item in value.values()], strict=True))
        return made

    def _pairs(self, value: Pairs) -> Any:
        made = self._add({})
        keys = [self.thawed(key) for key, _ in value.items]
        made.update(zip(keys, [self.thawed(item) for _, item in value.items], strict=True))
        return made

    def _members(self, value: Members) -> Any:
        if value.kind is frozenset:
            return frozenset([self.thawed(item) for item in value.items])
        made = self._add(set())
        made.update([self.thawed(item) for item in value.items])
        return made

    def _objects(self, value: Objects) -> Any:
        made = self._add(np.empty(value.shape, dtype=object))
        flat = made.reshape(-1)
        for index, item in enumerate(value.items):
            flat[index] = self.thawed(item)
        return made

    def _randomness(self, value: Randomness) -> Any:
        if self.seed is None:
            return self._add(generators.build(value.kind, value.state))
        self.num_reseeded += 1
        return self._add(generators.reseeded(value.kind, value.state, self.seed, self.num_reseeded))

    def _thing(self, value: Thing) -> Any:
        made = self._add(object.__new__(value.kind))
        set_attributes(made, {name: self.thawed(item) for name, item in value.attributes.items()})
        return made

    def _method(self, value: Method) -> Any:
        if isinstance(value.function, str):
            return getattr(self.thawed(value.owner), value.function)
        return types.MethodType(self.thawed(value.function), self.thawed(value.owner))

    def _closure(self, value: Closure) -> Any:
        place = self._reserve()
        new = [self._add(types.CellType()) for cell in value.cells if cell is None]
        waiting = iter(new)
        cells = tuple([next(waiting) if cell is None else self.thawed(cell) for cell in value.cells])
        original = value.function
        made = types.FunctionType(original.__code__, original.__globals__, original.__name__, None, cells)
        made.__qualname__, made.__module__ = original.__qualname__, original.__module__
        # Before what is in its variables, which may be the function itself.
        self.made[place] = made
        for cell, contents in zip(new, value.contents, strict=True):
            if contents:
                cell.cell_contents = self.thawed(contents[0])
        made.__defaults__, made.__kwdefaults__ = self.thawed(value.defaults)
        return made

    def _opaque(self, value: Opaque) -> Any:
        place = self._reserve()
        memo = {id(stand_in): live for stand_in, live in self.stand_ins.items()}
        self.made[place] = value.copied(memo)
        return self.made[place]

    def _reduced(self, value: Reduced) -> Any:
        place = self._reserve()
        made = self.made[place] = value.make(*self.thawed(value.arguments))
        if value.state is not None:
            _set_state(made, self.thawed(value.state))
        for item in () if value.items is None else self.thawed(value.items):
            made.append(item)
        for key, item in () if value.pairs is None else self.thawed(value.pairs):
            made[key] = item
        return made


# Where the libraries of arrays are that environments use, which their snapshots do not import.
_LIBRARIES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "jax": ("jax.numpy", lambda module, array: module.asarray(array)),
    "torch": ("torch", lambda module, array: module.from_numpy(np.array(array))),
}


def _in_library(value: OtherArray) -> Any:
    if value.library not in _LIBRARIES:
        raise SnapshotError(f"unknown library of arrays {shown(value.library)}: damaged or of another version")
    module, make = _LIBRARIES[value.library]
    if module not in sys.modules:
        raise SnapshotError(f"the snapshot holds an array of {module}: import it first, or make its environment")
    return make(sys.modules[module], value.array)


def _set_state(made: Any, state: Any) -> None:
    if "__setstate__" in dir(made):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    set_attributes(made, {**(attributes or {}), **(slots or {})})


_THAWERS: dict[Any, Callable[[Thawer, Any], Any]] = {
    list: Thawer._list,
    deque: Thawer._deque,
    dict: Thawer._dictionary,
    Pairs: Thawer._pairs,
    Members: Thawer._members,
    set: lambda thawer, value: thawer._add(set(value)),
    bytearray: lambda thawer, value: thawer._add(bytearray(value)),
    np.ndarray: lambda thawer, value: thawer._add(value.copy(order="K")),
    Objects: Thawer._objects,
    Randomness: Thawer._randomness,
    Thing: Thawer._thing,
    Opaque: Thawer._opaque,
    OtherArray: lambda thawer, value: _in_library(value),
    Reduced: Thawer._reduced,
    Again: Thawer._again,
    Here: lambda thawer, value: thawer.stand_ins[value],
    Method: Thawer._method,
    Closure: Thawer._closure,
    Record: lambda thawer, value: tuple.__new__(value.kind, [thawer.thawed(item) for item in value.items]),
}


def try_to_thaw(values: dict[str, Any]) -> None:
    """Raise SnapshotError unless values that came out of bytes can be thawed."""
    thawer = Thawer({Here.ENV: object(), Here.NP_RANDOM: None})
    for name, value in values.items():
        try:
            thawer.thawed(value)
        # Numpy, generators and the constructors of foreign classes are called here, and may raise anything.
        except Exception as error:
            raise SnapshotError(f"the attribute {name} cannot be put back ({error}): damaged") from error


def same(one: Any, other: Any) -> bool:
    """Return whether two frozen values are equal in type, bits and what they share."""
    kind = type(one)
    if kind is not type(other):
        return False
    if one is other:
        return True
    if kind is float:
        return (one == other and copysign(1.0, one) == copysign(1.0, other)) or (one != one and other != other)
    if kind is np.ndarray:
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, np.generic):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    if kind is Opaque:
        return _same_pickles(one.value, other.value)
    if kind is deque and one.maxlen != other.maxlen:
        return False
    if isinstance(one, tuple) or kind in (list, deque):
        return len(one) == len(other) and all(starmap(same, zip(one, other, strict=True)))
    if kind is dict:
        return len(one) == len(other) and all(map(same, one.items(), other.items()))
    if kind in ATOMS or isinstance(one, Enum) or kind in (set, frozenset, bytearray):
        return bool(one == other)
    if kind is types.FunctionType:
        # What it holds is compared beside it.
        return bool(one.__code__ == other.__code__)
    # Spaces and means of rendering are shared and not copied.
    return is_handle(one) or (isinstance(one, gym.Space | EnvSpec) and bool(one == other))


def _same_pickles(one: Any, other: Any) -> bool:
    try:
        return dumps(one) == dumps(other)
    except (PicklingError, TypeError, AttributeError):
        return True


def frozen(value: Any) -> Any:
    """Return one value frozen."""
    return Freezer().frozen(value)
