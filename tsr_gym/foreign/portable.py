"""Frozen values in a form that has bytes, and back.

Out of bytes come only objects and functions of the packages that the environment itself is made of: whoever wrote the
bytes must not choose what else is made or called.
"""

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Set
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.classes import find
from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.frozen import Closure, Members, Opaque, Reduced, Thing
from tsr_gym.foreign.objects import is_plain, module_of

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
