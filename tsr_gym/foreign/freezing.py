"""Freezing: copy a live value of an environment into an immutable one that preserves which parts are shared."""

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
from tsr_gym.foreign.addresses import is_unordered, refusal_of, unordered_in
from tsr_gym.foreign.objects import ATOMS, attributes_of, frees, is_handle, is_plain, module_of


class Uncopyable(SnapshotError):
    """An object cannot be copied exactly; the message names it and the reason."""


class Here(Enum):
    """Objects that a frozen value refers to and does not contain."""

    ENV = "the environment"
    NP_RANDOM = "the environment's generator"


class Again(NamedTuple):
    """A reference to an object that appeared earlier, by its number."""

    number: int


class Randomness(NamedTuple):
    """A random generator: its type name and its state."""

    kind: str
    state: Any


class Method(NamedTuple):
    """A bound method: the function, or the name of a built-in one, and its owner."""

    function: Any
    owner: Any


class Closure(NamedTuple):
    """A function that was defined inside another one and holds variables of it.

    Attributes:
        function: A function with the same code.
        defaults: Defaults of its arguments, by position and by name.
        cells: Its variables: an `Again`, or None for the next item of `contents`.
        contents: The values of the variables that are new here; an empty tuple for a variable without a value.
    """

    function: Any
    defaults: Any
    cells: tuple[Any, ...]
    contents: tuple[tuple[Any, ...], ...]


class Thing(NamedTuple):
    """An object that `is_plain`: its class and its attributes."""

    kind: Any
    attributes: dict[str, Any]


class Record(NamedTuple):
    """A NamedTuple with a mutable item."""

    kind: Any
    items: tuple[Any, ...]


class Pairs(NamedTuple):
    """A dictionary whose keys are mutable objects."""

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
    """The result of `__reduce_ex__`: the function that makes an object, and its contents."""

    make: Any
    arguments: Any
    state: Any
    items: Any
    pairs: Any


class Opaque:
    """A deep copy of an object that defines `__deepcopy__`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def copied(self, stand_ins: dict[int, Any]) -> Any:
        """Return another copy, in which objects are replaced by their identity as `stand_ins` specifies."""
        return copy.deepcopy(self.value, stand_ins)


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

    The first occurrence of an object is frozen and numbered; every later one becomes an `Again`. A thawer that counts
    in the same order finds the same objects, so sharing and cycles survive.

    Args:
        stand_ins: Replacements for objects that are not copied, by their identity.
    """

    def __init__(self, stand_ins: dict[int, Here] | None = None) -> None:
        self.stand_ins = stand_ins or {}
        self.seen: dict[int, int] = {}
        # Temporary objects must live as long as `seen` holds their identity: a new object could get the same one.
        self.alive: list[Any] = []
        self.memories: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.copied_elsewhere: set[int] = set()

    def frozen(self, value: Any) -> Any:
        """Return the frozen form of a value.

        Raises:
            Uncopyable: It contains an object that cannot be copied exactly.
        """
        cls = type(value)
        if cls in ATOMS:
            return value
        if cls is tuple:
            items = tuple([self.frozen(item) for item in value])
            # A tuple without mutable parts is returned itself, which keeps identities and saves memory.
            return value if all(map(is_, items, value)) else items
        if cls is frozenset:
            return self._set(value)
        identity = id(value)
        if identity in self.seen:
            return Again(self.seen[identity])
        if identity in self.stand_ins:
            return self.stand_ins[identity]
        if identity in self.copied_elsewhere:
            raise Uncopyable(f"a {cls.__qualname__} is shared with an object that copies itself")
        freeze = _FREEZERS.get(cls)
        if freeze is not None:
            self._number(value)
            return freeze(self, value)
        return self._other(value, cls)

    def _number(self, value: Any) -> None:
        self.seen[id(value)] = len(self.seen)
        self.alive.append(value)

    def _other(self, value: Any, cls: Any) -> Any:
        if isinstance(value, np.generic | Enum) and not (isinstance(value, np.generic) and value.dtype.hasobject):
            return value
        if cls is types.FunctionType:
            return self._function(value)
        if cls is types.MethodType:
            return Method(self.frozen(value.__func__), self.frozen(value.__self__))
        if cls is types.BuiltinFunctionType and not isinstance(value.__self__, type | types.ModuleType | None):
            return Method(value.__name__, self.frozen(value.__self__))
        if isinstance(value, (*_CODE, gym.Space, EnvSpec)) or is_handle(value):
            return value
        if isinstance(value, tuple) and "_fields" in vars(cls):
            items = tuple([self.frozen(item) for item in value])
            return value if all(map(is_, items, value)) else Record(cls, items)
        if value is find(getattr(value, "__module__", None), getattr(value, "__qualname__", None)):
            # A module-level object that is code in another form, such as a function in an lru_cache.
            return value
        if is_unordered(value):
            raise Uncopyable(refusal_of(value))
        if frees(cls):
            raise Uncopyable(f"a {cls.__qualname__} frees a resource when it is deleted, and so would its copy")
        self._number(value)
        if is_plain(cls):
            return Thing(cls, {name: self.frozen(item) for name, item in attributes_of(value).items()})
        return self._by_protocol(value, cls)

    def _by_protocol(self, value: Any, cls: Any) -> Any:
        name = f"{module_of(cls)}.{cls.__qualname__}".lstrip(".")
        if isinstance(value, gym.utils.EzPickle):
            raise Uncopyable(f"a {name} would be copied in the state right after its construction")
        try:
            if "__deepcopy__" in dir(cls):
                memo: dict[int, Any] = dict(self.stand_ins)
                copied = copy.deepcopy(value, memo)
                if copied is value:
                    raise TypeError("it returns itself instead of a copy")
                if reason := unordered_in(value):
                    raise Uncopyable(reason)
                self._note_copied(memo, name)
                return Opaque(copied)
            reduced = value.__reduce_ex__(4)
        except Uncopyable:
            raise
        # Foreign code may raise any exception here; each one means that there is no copy.
        except Exception as error:
            raise Uncopyable(f"a {name} cannot be copied ({error})") from error
        if isinstance(reduced, str):
            raise Uncopyable(f"a {name} cannot be copied (it reduces to the global name {reduced})")
        # The result of `__reduce_ex__` has two to five parts; the missing ones are None. It must stay alive, because
        # its parts are numbered by identity.
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
        # A deep copy has its own copies of everything inside. An object that is also frozen outside of it would become
        # two objects after thawing, so sharing across this border is refused, whichever side is met first.
        inside = {identity for identity in memo if identity not in self.stand_ins}
        inside.discard(id(memo))
        if len(inside & self.seen.keys()) > 1:
            raise Uncopyable(f"a {name} copies itself and shares objects with others")
        self.copied_elsewhere |= inside
        self.alive.append(memo)

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        if value.dtype.hasobject:
            if value.dtype != object:
                raise Uncopyable("an array of records holds Python objects")
            return Objects(value.shape, tuple([self.frozen(item) for item in value.ravel().tolist()]))
        # Two views of one memory would become two separate copies, so shared memory is refused. Each array is compared
        # with the earlier ones that have the same owner of memory.
        root: Any = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not isinstance(root.base, None | bytes):
            raise Uncopyable(f"an array is a view of memory that a {type(root.base).__qualname__} owns")
        others = self.memories.setdefault(id(root), [])
        if any(np.may_share_memory(value, other) for other in others):
            raise Uncopyable("two arrays share memory")
        others.append(value)
        return value.copy(order="K")

    def _dictionary(self, value: dict[Any, Any]) -> Any:
        keys = [self.frozen(key) for key in value]
        items = [self.frozen(item) for item in value.values()]
        if all(map(is_, keys, value)):
            return dict(zip(keys, items, strict=True))
        return Pairs(tuple(zip(keys, items, strict=True)))

    def _set(self, value: Any) -> Any:
        if is_unordered(value):
            raise Uncopyable(refusal_of(value))
        items = [self.frozen(item) for item in value]
        if all(map(is_, items, value)):
            return value if type(value) is frozenset else set(items)
        return Members(type(value), tuple(items))

    def _function(self, value: Any) -> Any:
        """Return a function itself, or a `Closure` if it holds variables or defaults, which may change."""
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
        # All cells are numbered before their contents are frozen: the contents may refer to them and to the function.
        contents = tuple([() if _is_empty(cell) else (self.frozen(cell.cell_contents),) for cell in new])
        defaults = (self.frozen(value.__defaults__), self.frozen(value.__kwdefaults__))
        return Closure(value, defaults, tuple(cells), contents)


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (reading is the only test)
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
    **{cls: lambda freezer, value: Randomness(*generators.reading(value)) for cls in generators.KINDS},
}


class _ByValue(Freezer):
    """Freezes arrays as numbers, also arrays that share memory and arrays of other libraries.

    The caller that passes an action or option keeps no reference that matters, so only the numbers count.
    """

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        return super()._array(value) if value.dtype.hasobject else value.copy(order="K")

    def _other(self, value: Any, cls: Any) -> Any:
        made = _other_array(value)
        return super()._other(value, cls) if made is None else made


def _other_array(value: Any) -> OtherArray | None:
    """Return an array of JAX or PyTorch as numbers; None for other values."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and isinstance(value, jax.Array):
        return OtherArray("jax", np.array(value))
    if torch is not None and isinstance(value, torch.Tensor):
        return OtherArray("torch", value.detach().cpu().numpy().copy())
    return None


def kept(value: Any) -> Any:
    """Return the frozen form of an action or option that an environment is given.

    Raises:
        Uncopyable: It contains an object that cannot be copied exactly.
    """
    try:
        return _ByValue().frozen(value)
    except Uncopyable:
        raise
    # Foreign objects may raise any exception when their attributes are read.
    except Exception as error:
        raise Uncopyable(f"a {type(value).__qualname__} cannot be copied ({error})") from error
