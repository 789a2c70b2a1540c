"""Thawing: make frozen values live again, compare them, and convert them to and from a form that bytes can hold."""

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
from tsr_gym.foreign.objects import ATOMS, is_handle, is_plain, module_of, set_attributes


class Thawer:
    """Makes live values from frozen ones, which may share objects with each other.

    It numbers the objects that it makes in the order in which the `Freezer` numbered them, so that an `Again` finds its
    object. An object is therefore numbered before its contents are made.

    Args:
        stand_ins: The live objects for the stand-ins.
        seed: None continues every generator at its position; a number reseeds all of them.
    """

    def __init__(self, stand_ins: dict[Here, Any], seed: int | None = None) -> None:
        self.stand_ins = stand_ins
        self.seed = seed
        self.made: list[Any] = []
        self.num_reseeded = 0

    def thawed(self, value: Any) -> Any:
        """Return a new live value of a frozen one."""
        cls = type(value)
        if cls in ATOMS:
            return value
        if cls is tuple:
            return tuple([self.thawed(item) for item in value])
        thaw = _THAWERS.get(cls)
        # All other types are immutable or meant to be shared.
        return value if thaw is None else thaw(self, value)

    def _add(self, made: Any) -> Any:
        # Numbers follow the order in which the freezer met the objects: a container before its content, which can then
        # refer to the container.
        self.made.append(made)
        return made

    def _reserve(self) -> int:
        self.made.append(None)
        return len(self.made) - 1

    def _again(self, value: Again) -> Any:
        made = self.made[value.number] if 0 <= value.number < len(self.made) else None
        if made is None:
            raise SnapshotError("an object contains itself before it can be made, so it cannot be restored")
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
        # The constructor is not called: it could draw numbers, open windows or change other objects.
        made = self._add(object.__new__(value.kind))
        set_attributes(made, {name: self.thawed(item) for name, item in value.attributes.items()})
        return made

    def _method(self, value: Method) -> Any:
        if isinstance(value.function, str):
            return getattr(self.thawed(value.owner), value.function)
        return types.MethodType(self.thawed(value.function), self.thawed(value.owner))

    def _closure(self, value: Closure) -> Any:
        place = self._reserve()
        # New variables get their numbers here, all of them before any content, as in `Freezer._function`.
        new = [self._add(types.CellType()) for cell in value.cells if cell is None]
        waiting = iter(new)
        cells = tuple([next(waiting) if cell is None else self.thawed(cell) for cell in value.cells])
        original = value.function
        made = types.FunctionType(original.__code__, original.__globals__, original.__name__, None, cells)
        made.__qualname__, made.__module__ = original.__qualname__, original.__module__
        # Store the function before its variables are thawed, because a variable may hold the function.
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


# The array libraries that environments use. A snapshot does not import them: they must be imported already.
_LIBRARIES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "jax": ("jax.numpy", lambda module, array: module.asarray(array)),
    "torch": ("torch", lambda module, array: module.from_numpy(np.array(array))),
}


def _in_library(value: OtherArray) -> Any:
    if value.library not in _LIBRARIES:
        raise SnapshotError(f"unknown library of arrays {shown(value.library)}: damaged or of another version")
    module, make = _LIBRARIES[value.library]
    if module not in sys.modules:
        raise SnapshotError(f"the snapshot holds an array of {module}: import {module} or make the environment first")
    return make(sys.modules[module], value.array)


def _set_state(made: Any, state: Any) -> None:
    if "__setstate__" in dir(made):
        made.__setstate__(state)
        return
    # As in pickle: a pair holds the attributes of the dictionary and those of slots.
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
    """Raise SnapshotError unless values that were read from bytes can be thawed."""
    thawer = Thawer({Here.ENV: object(), Here.NP_RANDOM: None})
    for name, value in values.items():
        try:
            thawer.thawed(value)
        # Numpy, generators and constructors of foreign classes are called here and may raise any exception.
        except Exception as error:
            raise SnapshotError(f"the attribute {name} cannot be restored ({error}): damaged") from error


def same(left: Any, right: Any) -> bool:
    """Return whether two frozen values are equal in type, in bits and in what they share."""
    cls = type(left)
    if cls is not type(right):
        return False
    if left is right:
        return True
    if cls is float:
        # 0.0 and -0.0 differ in their bits, and NaN equals NaN here.
        return (left == right and copysign(1.0, left) == copysign(1.0, right)) or (left != left and right != right)
    if cls is np.ndarray:
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, np.generic):
        return bool(left.dtype == right.dtype and left.tobytes() == right.tobytes())
    if cls is Opaque:
        return _same_pickles(left.value, right.value)
    if cls is deque and left.maxlen != right.maxlen:
        return False
    if isinstance(left, tuple) or cls in (list, deque):
        return len(left) == len(right) and all(starmap(same, zip(left, right, strict=True)))
    if cls is dict:
        return len(left) == len(right) and all(map(same, left.items(), right.items()))
    if cls in ATOMS or isinstance(left, Enum) or cls in (set, frozenset, bytearray):
        return bool(left == right)
    if cls is types.FunctionType:
        # Variables and defaults of a function are compared as other fields of its `Closure`.
        return bool(left.__code__ == right.__code__)
    # Spaces and handles for rendering are shared between copies.
    return is_handle(left) or (isinstance(left, gym.Space | EnvSpec) and bool(left == right))


def _same_pickles(left: Any, right: Any) -> bool:
    try:
        return dumps(left) == dumps(right)
    except (PicklingError, TypeError, AttributeError):
        return True


def frozen(value: Any) -> Any:
    """Return the frozen form of a single value."""
    return Freezer().frozen(value)


_OURS = "tsr_gym.foreign."


class Named(NamedTuple):
    """A class or function of a module; with an empty name, the module."""

    module: str
    name: str


class Made(NamedTuple):
    """A value of a type that the codec does not write, as a type name and plain items."""

    kind: str
    items: Any


class Axes(NamedTuple):
    """An array with the order of its axes in memory."""

    order: tuple[int, ...]
    array: Any


_MADE: dict[str, Callable[[Any], Any]] = {"set": set, "bytearray": bytearray, "complex": lambda parts: complex(*parts)}
_MADE |= {"range": lambda parts: range(*parts), "slice": lambda parts: slice(*parts), "dtype": np.dtype}
_CONTAINERS = {"OrderedDict": OrderedDict, "defaultdict": defaultdict}
# Classes that a snapshot may name although they belong to no package of the environment.
_HARMLESS = frozenset({int, float, complex, list, dict, set, frozenset, str, bytes, bool, tuple, *_CONTAINERS.values()})
_CODE = (type, FunctionType, BuiltinFunctionType, ModuleType)


def portable(value: Any) -> Any:
    """Return a frozen value in a form that the codec can write.

    Raises:
        SnapshotError: A part has no such form.
    """
    cls = type(value)
    if cls in (list, deque):
        items = [portable(item) for item in value]
        return items if cls is list else deque(items, value.maxlen)
    if cls is tuple:
        return tuple([portable(item) for item in value])
    if cls is dict:
        return {portable(name): portable(item) for name, item in value.items()}
    if cls is np.ndarray:
        return _laid_out(value)
    if cls is set:
        return Made("set", frozenset(value))
    if cls is bytearray:
        return Made("bytearray", bytes(value))
    if cls is complex:
        return Made("complex", (value.real, value.imag))
    if cls in (range, slice):
        return Made(cls.__name__, (value.start, value.stop, value.step))
    if isinstance(value, np.dtype) and not value.hasobject and value.names is None:
        return Made("dtype", value.str)
    if isinstance(value, _CODE):
        name = _named(value)
        if _object_named(name) is not value:
            raise SnapshotError(f"it holds {value!r}, which another process cannot find by its name")
        return name
    if isinstance(value, tuple) and module_of(cls).startswith(_OURS):
        if isinstance(value, Reduced) and value.make not in _CONTAINERS.values():
            raise SnapshotError(f"it holds an object that {value.make!r} makes")
        return cls(*[portable(part) for part in value])
    if cls is Opaque:
        raise SnapshotError(f"it holds a {type(value.value).__qualname__}, which copies itself")
    return value


def portable_attribute(value: Any) -> Any:
    """Return a frozen attribute in a form that the codec can write.

    A function without a global name is allowed: on restore it is taken from the same attribute of the environment.
    """
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
    """Return whether a snapshot may set an attribute of this name: identifiers, but no dunder names."""
    return isinstance(name, str) and name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


def _laid_out(value: np.ndarray[Any, Any]) -> Any:
    if value.flags.c_contiguous:
        return value
    # The codec writes arrays in C order. Environments may depend on the memory layout, for example through views or
    # C extensions, so the order of the axes is stored with the transposed array.
    order = tuple(int(axis) for axis in np.argsort([-abs(stride) for stride in value.strides], kind="stable"))
    return Axes(order, np.ascontiguousarray(value.transpose(order)))


def imported(value: Any, packages: Set[str], here: Any = None) -> Any:
    """Return the frozen value of a portable form: the inverse of `portable`.

    Args:
        value: The value that was read from bytes.
        packages: The packages whose classes and functions it may name.
        here: The value in the same place of the environment that is restored. A function without a global name is taken
            from here.

    Raises:
        SnapshotError: It names a class or function of another package, or one that does not exist.
    """
    cls = type(value)
    if cls is Named:
        return _imported(value, packages, here)
    if cls is Made:
        if value.kind not in _MADE:
            raise SnapshotError(f"unknown container {value.kind!r}: damaged or of another version")
        return _MADE[value.kind](value.items)
    if cls is Axes:
        return value.array.transpose(np.argsort(value.order)).copy(order="K")
    if cls in (list, deque):
        items = [imported(item, packages) for item in value]
        return items if cls is list else deque(items, value.maxlen)
    if cls is dict:
        return {imported(name, packages): imported(item, packages) for name, item in value.items()}
    if isinstance(value, tuple) and (cls is tuple or module_of(cls).startswith(_OURS)):
        # Only the first part of a record can be a function, so only it may be taken from the environment.
        first = [imported(part, packages, here) for part in value[:1]]
        parts = [*first, *[imported(part, packages) for part in value[1:]]]
        if not _is_harmless(cls, parts):
            raise SnapshotError(f"the snapshot holds an object that {parts[0]!r} makes: refused")
        return tuple(parts) if cls is tuple else cls(*parts)
    return value


def _is_harmless(cls: Any, parts: list[Any]) -> bool:
    """Return whether thawing these parts makes only objects and calls only functions that are allowed.

    Bytes may come from anywhere, so this is the gate: containers, sets and plain classes pass, all other calls do not.
    """
    if cls is Reduced:
        return parts[0] in _CONTAINERS.values()
    if cls is Members:
        return parts[0] in (set, frozenset)
    if cls is Thing:
        return isinstance(parts[0], type) and is_plain(parts[0]) and all(map(may_be_set, parts[1]))
    return True


def _object_named(name: Named) -> Any:
    return find(name.module, name.name) if name.name else sys.modules.get(name.module)


def _imported(wanted: Named, packages: Set[str], here: Any) -> Any:
    if isinstance(here, _CODE) and _named(here) == wanted:
        return here
    named = _object_named(wanted)
    if isinstance(named, type) and (named in _HARMLESS or issubclass(named, np.generic)):
        return named
    if named is not None and wanted.module.partition(".")[0] in packages:
        return named
    if "<" in wanted.name:
        raise SnapshotError(f"every reset makes {wanted.name} anew: call reset() first, then restore")
    raise SnapshotError(
        f"the snapshot names {wanted.module}.{wanted.name}, which is not in the environment's own packages "
        f"{sorted(packages)}: refused"
    )
