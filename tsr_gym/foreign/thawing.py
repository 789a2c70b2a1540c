"""Thawing: a frozen value becomes live again, is compared, and is written in a form that bytes can hold."""

import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Set
from enum import Enum
from itertools import starmap
from math import copysign
from pickle import PicklingError, dumps
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import find
from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign import generators
from tsr_gym.foreign.freezing import (
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
from tsr_gym.foreign.objects import is_handle, is_plain, module_of, set_attributes


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


_OURS = "tsr_gym.foreign."


class Named(NamedTuple):
    """A class or function of a module, or, without a name, the module."""

    module: str
    name: str


class Made(NamedTuple):
    """A container that has no bytes of its own."""

    kind: str
    items: Any


class Axes(NamedTuple):
    """An array whose axes lie in memory in this order."""

    order: tuple[int, ...]
    array: Any


_MADE: dict[str, Callable[[Any], Any]] = {"set": set, "bytearray": bytearray, "complex": lambda parts: complex(*parts)}
_MADE |= {"range": lambda parts: range(*parts), "slice": lambda parts: slice(*parts), "dtype": np.dtype}
_CONTAINERS = {"OrderedDict": OrderedDict, "defaultdict": defaultdict}
# What may be named though it belongs to no package of the environment.
_HARMLESS = frozenset({int, float, complex, list, dict, set, frozenset, str, bytes, bool, tuple, *_CONTAINERS.values()})
_CODE = (type, FunctionType, BuiltinFunctionType, ModuleType)


def portable(value: Any) -> Any:
    """Return a frozen value in a form that has bytes, wherever its parts have one."""
    kind = type(value)
    if kind in (list, deque):
        items = [portable(item) for item in value]
        return items if kind is list else deque(items, value.maxlen)
    if kind is tuple:
        return tuple([portable(item) for item in value])
    if kind is dict:
        return {portable(name): portable(item) for name, item in value.items()}
    if kind is np.ndarray:
        return _laid_out(value)
    if kind is set:
        return Made("set", frozenset(value))
    if kind is bytearray:
        return Made("bytearray", bytes(value))
    if kind is complex:
        return Made("complex", (value.real, value.imag))
    if kind in (range, slice):
        return Made(kind.__name__, (value.start, value.stop, value.step))
    if isinstance(value, np.dtype) and not value.hasobject and value.names is None:
        return Made("dtype", value.str)
    if isinstance(value, _CODE):
        name = _named(value)
        if _found(name) is not value:
            raise SnapshotError(f"it holds {value!r}, which no other process finds by its name")
        return name
    if isinstance(value, tuple) and module_of(kind).startswith(_OURS):
        if isinstance(value, Reduced) and value.make not in _CONTAINERS.values():
            raise SnapshotError(f"it holds an object that {value.make!r} makes")
        return kind(*[portable(part) for part in value])
    if kind is Opaque:
        raise SnapshotError(f"it holds a {type(value.value).__qualname__}, which copies itself")
    return value


def portable_attribute(value: Any) -> Any:
    """Return a frozen attribute in a form that has bytes; its function may be one that only the environment has."""
    if isinstance(value, _CODE):
        return _named(value)
    if type(value) is Closure:
        return value._replace(
            function=_named(value.function), defaults=portable(value.defaults), contents=portable(value.contents)
        )
    return portable(value)


def _named(value: Any) -> Named:
    if isinstance(value, ModuleType):
        return Named(value.__name__, "")
    return Named(module_of(value), value.__qualname__)


def may_be_set(name: Any) -> bool:
    """Return whether bytes may give an object an attribute of this name."""
    return isinstance(name, str) and name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


def _laid_out(value: np.ndarray[Any, Any]) -> Any:
    if value.flags.c_contiguous:
        return value
    order = tuple(int(axis) for axis in np.argsort([-abs(stride) for stride in value.strides], kind="stable"))
    return Axes(order, np.ascontiguousarray(value.transpose(order)))


def imported(value: Any, packages: Set[str], here: Any = None) -> Any:
    """Return what `portable` returned as a frozen value again.

    Args:
        value: What came out of bytes.
        packages: The packages whose classes and functions may be named.
        here: What stands at the same place of the environment that is restored: a function without a name of its own
            is taken from there.

    Raises:
        SnapshotError: It names something else.
    """
    kind = type(value)
    if kind is Named:
        return _imported(value, packages, here)
    if kind is Made:
        if value.kind not in _MADE:
            raise SnapshotError(f"unknown container {value.kind!r}: damaged or of another version")
        return _MADE[value.kind](value.items)
    if kind is Axes:
        return value.array.transpose(np.argsort(value.order)).copy(order="K")
    if kind in (list, deque):
        items = [imported(item, packages) for item in value]
        return items if kind is list else deque(items, value.maxlen)
    if kind is dict:
        return {imported(name, packages): imported(item, packages) for name, item in value.items()}
    if isinstance(value, tuple) and (kind is tuple or module_of(kind).startswith(_OURS)):
        first = [imported(part, packages, here) for part in value[:1]]
        parts = [*first, *[imported(part, packages) for part in value[1:]]]
        if not _is_harmless(kind, parts):
            raise SnapshotError(f"the snapshot holds something that {parts[0]!r} makes: refused")
        return tuple(parts) if kind is tuple else kind(*parts)
    return value


def _is_harmless(kind: Any, parts: list[Any]) -> bool:
    """Return whether thawing these parts makes and calls only what may be."""
    if kind is Reduced:
        return parts[0] in _CONTAINERS.values()
    if kind is Members:
        return parts[0] in (set, frozenset)
    if kind is Thing:
        return isinstance(parts[0], type) and is_plain(parts[0]) and all(map(may_be_set, parts[1]))
    return True


def _found(name: Named) -> Any:
    return find(name.module, name.name) if name.name else sys.modules.get(name.module)


def _imported(wanted: Named, packages: Set[str], here: Any) -> Any:
    if isinstance(here, _CODE) and _named(here) == wanted:
        return here
    found = _found(wanted)
    if isinstance(found, type) and (found in _HARMLESS or issubclass(found, np.generic)):
        return found
    if found is not None and wanted.module.partition(".")[0] in packages:
        return found
    if "<" in wanted.name:
        raise SnapshotError(f"{wanted.name} is made anew by every reset: call reset() first, then restore")
    raise SnapshotError(
        f"the snapshot names {wanted.module}.{wanted.name}, which is not of the environment's own packages "
        f"{sorted(packages)}: refused"
    )
