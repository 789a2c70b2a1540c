"""Freezing: a live value of an environment becomes an immutable one that keeps what its parts share."""

import copy
import sys
import types
from collections import deque
from collections.abc import Callable
from enum import Enum
from operator import is_
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tsr_gym.codec import find
from tsr_gym.errors import SnapshotError
from tsr_gym.foreign import generators
from tsr_gym.foreign.objects import attributes_of, frees, is_handle, is_plain, module_of


class Uncopyable(SnapshotError):
    """Something cannot be copied exactly; the message says what and why."""


class Here(Enum):
    """What a frozen value points to without holding it."""

    ENV = "the environment"
    NP_RANDOM = "the environment's generator"


class Again(NamedTuple):
    """The object with this number, met before."""

    number: int


class Randomness(NamedTuple):
    """A random generator."""

    kind: str
    state: Any


class Method(NamedTuple):
    """A bound method: the function, or the name of one that is built in, and its owner."""

    function: Any
    owner: Any


class Closure(NamedTuple):
    """A function that was made by another and holds variables of it.

    Attributes:
        function: A function with the same code.
        defaults: Defaults of its arguments, by position and by name.
        cells: Its variables, each `Again` or one of `contents` in turn.
        contents: What is in the variables that were not met before; empty tuples for those without a value yet.
    """

    function: Any
    defaults: Any
    cells: tuple[Any, ...]
    contents: tuple[tuple[Any, ...], ...]


class Thing(NamedTuple):
    """An object that is nothing but its attributes."""

    kind: Any
    attributes: dict[str, Any]


class Record(NamedTuple):
    """A NamedTuple that holds something that can be changed."""

    kind: Any
    items: tuple[Any, ...]


class Pairs(NamedTuple):
    """A dictionary with keys that are objects."""

    items: tuple[tuple[Any, Any], ...]


class Members(NamedTuple):
    """A set of objects."""

    kind: Any
    items: tuple[Any, ...]


class Objects(NamedTuple):
    """An array of Python objects."""

    shape: tuple[int, ...]
    items: tuple[Any, ...]


class OtherArray(NamedTuple):
    """An array of another library, as its numbers."""

    library: str
    array: Any


class Reduced(NamedTuple):
    """What Python's copy protocol says of an object: how to make it, and what to fill it with."""

    make: Any
    arguments: Any
    state: Any
    items: Any
    pairs: Any


class Opaque:
    """A deep copy of an object that copies itself in its own way."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def copied(self, stand_ins: dict[int, Any]) -> Any:
        """Return another copy, in which what is given by its identity is replaced."""
        return copy.deepcopy(self.value, stand_ins)


ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)})
_CODE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    np.ufunc,
    np.dtype,
    property,
    staticmethod,
    classmethod,
)


class Freezer:
    """Freezes values that may share objects with each other.

    Args:
        stand_ins: What stands for objects that are not copied, by their identity.
    """

    def __init__(self, stand_ins: dict[int, Here] | None = None) -> None:
        self.stand_ins = stand_ins or {}
        self.seen: dict[int, int] = {}
        # What is only made on the way must live as long as its identity is remembered.
        self.alive: list[Any] = []
        self.memories: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.copied_elsewhere: set[int] = set()

    def frozen(self, value: Any) -> Any:
        """Return a value frozen.

        Raises:
            Uncopyable: It holds something that cannot be copied exactly.
        """
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind is tuple:
            items = tuple([self.frozen(item) for item in value])
            return value if all(map(is_, items, value)) else items
        if kind is frozenset:
            return self._set(value)
        identity = id(value)
        if identity in self.seen:
            return Again(self.seen[identity])
        if identity in self.stand_ins:
            return self.stand_ins[identity]
        if identity in self.copied_elsewhere:
            raise Uncopyable(f"a {kind.__qualname__} is shared with an object that copies itself")
        freeze = _FREEZERS.get(kind)
        if freeze is not None:
            self._number(value)
            return freeze(self, value)
        return self._other(value, kind)

    def _number(self, value: Any) -> None:
        self.seen[id(value)] = len(self.seen)
        self.alive.append(value)

    def _other(self, value: Any, kind: Any) -> Any:
        if isinstance(value, np.generic | Enum) and not (isinstance(value, np.generic) and value.dtype.hasobject):
            return value
        if kind is types.FunctionType:
            return self._function(value)
        if kind is types.MethodType:
            return Method(self.frozen(value.__func__), self.frozen(value.__self__))
        if kind is types.BuiltinFunctionType and not isinstance(value.__self__, type | types.ModuleType | None):
            return Method(value.__name__, self.frozen(value.__self__))
        if isinstance(value, (*_CODE, gym.Space, EnvSpec)) or is_handle(value):
            return value
        if isinstance(value, tuple) and "_fields" in vars(kind):
            items = tuple([self.frozen(item) for item in value])
            return value if all(map(is_, items, value)) else Record(kind, items)
        if value is find(getattr(value, "__module__", None), getattr(value, "__qualname__", None)):
            # Code of another kind, such as a function that caches.
            return value
        if frees(kind):
            raise Uncopyable(f"a {kind.__qualname__} frees something when it is deleted, so a copy of it would too")
        self._number(value)
        if is_plain(kind):
            return Thing(kind, {name: self.frozen(item) for name, item in attributes_of(value).items()})
        return self._by_protocol(value, kind)

    def _by_protocol(self, value: Any, kind: Any) -> Any:
        name = f"{module_of(kind)}.{kind.__qualname__}".lstrip(".")
        if isinstance(value, gym.utils.EzPickle):
            raise Uncopyable(f"a {name} would be copied as what it was when it was made")
        try:
            if "__deepcopy__" in dir(kind):
                memo: dict[int, Any] = dict(self.stand_ins)
                copied = copy.deepcopy(value, memo)
                if copied is value:
                    raise TypeError("it returns itself instead of a copy")
                self._note_copied(memo, name)
                return Opaque(copied)
            reduced = value.__reduce_ex__(4)
        except Uncopyable:
            raise
        # Whatever foreign code raises when it is asked for a copy means the same.
        except Exception as error:
            raise Uncopyable(f"a {name} cannot be copied ({error})") from error
        if isinstance(reduced, str):
            raise Uncopyable(f"a {name} cannot be copied (it gives the name {reduced} for a copy)")
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        self.alive.append(reduced)
        return Reduced(
            make,
            self.frozen(arguments),
            self.frozen(state),
            None if items is None else self.frozen(tuple(items)),
            None if pairs is None else self.frozen(tuple(pairs)),
        )

    def _note_copied(self, memo: dict[int, Any], name: str) -> None:
        inside = {identity for identity in memo if identity not in self.stand_ins}
        inside.discard(id(memo))
        if len(inside & self.seen.keys()) > 1:
            raise Uncopyable(f"a {name} copies itself, and shares objects with others")
        self.copied_elsewhere |= inside
        self.alive.append(memo)

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        if value.dtype.hasobject:
            if value.dtype != object:
                raise Uncopyable("an array of records holds Python objects")
            return Objects(value.shape, tuple([self.frozen(item) for item in value.ravel().tolist()]))
        root: Any = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not isinstance(root.base, None | bytes):
            raise Uncopyable(f"an array looks into memory that a {type(root.base).__qualname__} owns")
        others = self.memories.setdefault(id(root), [])
        if any(np.may_share_memory(value, other) for other in others):
            raise Uncopyable("two arrays look into the same memory")
        others.append(value)
        return value.copy(order="K")

    def _dictionary(self, value: dict[Any, Any]) -> Any:
        keys = [self.frozen(key) for key in value]
        items = [self.frozen(item) for item in value.values()]
        if all(map(is_, keys, value)):
            return dict(zip(keys, items, strict=True))
        return Pairs(tuple(zip(keys, items, strict=True)))

    def _set(self, value: Any) -> Any:
        items = [self.frozen(item) for item in value]
        if all(map(is_, items, value)):
            return value if type(value) is frozenset else set(items)
        return Members(type(value), tuple(items))

    def _function(self, value: Any) -> Any:
        """Return a function itself, unless it holds something, which might change."""
        if not value.__closure__ and (
            "<" not in value.__qualname__ or not (value.__defaults__ or value.__kwdefaults__)
        ):
            return value
        self._number(value)
        cells: list[Any] = []
        new = []
        for cell in value.__closure__ or ():
            if id(cell) in self.seen:
                cells.append(Again(self.seen[id(cell)]))
            else:
                self._number(cell)
                cells.append(None)
                new.append(cell)
        contents = tuple([() if _is_empty(cell) else (self.frozen(cell.cell_contents),) for cell in new])
        defaults = (self.frozen(value.__defaults__), self.frozen(value.__kwdefaults__))
        return Closure(value, defaults, tuple(cells), contents)


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (asking is the only way)
    except ValueError:
        return True
    return False


_FREEZERS: dict[Any, Callable[[Freezer, Any], Any]] = {
    list: lambda freezer, value: [freezer.frozen(item) for item in value],
    dict: Freezer._dictionary,
    set: Freezer._set,
    deque: lambda freezer, value: deque([freezer.frozen(item) for item in value], value.maxlen),
    bytearray: lambda freezer, value: bytearray(value),
    np.ndarray: lambda freezer, value: freezer._array(value),
    **{kind: lambda freezer, value: Randomness(*generators.reading(value)) for kind in generators.KINDS},
}


class _ByValue(Freezer):
    """Freezes arrays as numbers, also where they share memory or belong to other libraries."""

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        return super()._array(value) if value.dtype.hasobject else value.copy(order="K")

    def _other(self, value: Any, kind: Any) -> Any:
        made = _other_array(value)
        return super()._other(value, kind) if made is None else made


def _other_array(value: Any) -> OtherArray | None:
    """Return an array of JAX or PyTorch as numbers, None for anything else."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and isinstance(value, jax.Array):
        return OtherArray("jax", np.array(value))
    if torch is not None and isinstance(value, torch.Tensor):
        return OtherArray("torch", value.detach().cpu().numpy().copy())
    return None


def kept(value: Any) -> Any:
    """Return what an environment is given as a frozen value.

    Raises:
        Uncopyable: It holds something that has no value of its own.
    """
    try:
        return _ByValue().frozen(value)
    except Uncopyable:
        raise
    # Objects of others may raise anything when they are looked at.
    except Exception as error:
        raise Uncopyable(f"a {type(value).__qualname__} cannot be copied ({error})") from error
