"""Objects taken for their attributes: which they are nothing else than, and which they are more than."""

import types
from contextlib import suppress
from functools import lru_cache
from struct import calcsize
from typing import Any

import gymnasium as gym

# Set for classes that are made when the program runs, and so for all that are written in Python.
_HEAP_TYPE = 1 << 9
_COPIES_ITSELF = frozenset(
    {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__"}
    | {"__getnewargs__", "__getnewargs_ex__"}
)


def module_of(kind: Any) -> str:
    """Return the name of the module that a class says it is from; those of extensions need not say."""
    return str(getattr(kind, "__module__", None) or "")


@lru_cache(maxsize=1024)
def _slots_of(cls: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, item)
        for base in cls.__mro__
        for name, item in vars(base).items()
        if isinstance(item, types.MemberDescriptorType)
    )


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object holds itself, those in slots included; not to be written to."""
    found: dict[str, Any] = getattr(value, "__dict__", {})
    cls: Any = type(value)
    if slots := _slots_of(cls):
        found = dict(found)
        for name, slot in slots:
            # An empty slot has no value.
            with suppress(AttributeError):
                found[name] = slot.__get__(value)
    return found


def is_of_class(cls: Any, name: str) -> bool:
    """Return whether a name is that of a method or property, which an object must not hide by an attribute."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return hasattr(type(found), "__get__") and not isinstance(found, types.MemberDescriptorType)


def set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Give an object attributes without asking its class."""
    for name, item in attributes.items():
        object.__setattr__(value, name, item)


@lru_cache(maxsize=1024)
def is_plain(cls: Any) -> bool:
    """Return whether objects of a class are nothing but their attributes."""
    if any(base is not object and not base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return False
    if _hidden_bytes(cls):
        return False
    if issubclass(cls, gym.Env | gym.utils.EzPickle):
        # They pickle, and so copy, as what they were when they were made.
        return True
    own = {name for base in cls.__mro__[:-1] for name in vars(base)}
    return cls.__new__ is object.__new__ and not own & _COPIES_ITSELF


def frees(cls: Any) -> bool:
    """Return whether something is freed when an object of a class is deleted, which a copy would do too early."""
    return any("__del__" in vars(base) and base.__flags__ & _HEAP_TYPE for base in cls.__mro__)


def _hidden_bytes(cls: Any) -> int:
    """Return how many bytes of an object neither its dictionary nor its slots explain."""
    # Where the interpreter manages dictionary and weak references itself, the offsets are negative and take no room.
    pointers = (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0) + len(_slots_of(cls))
    hidden: int = cls.__basicsize__ - object.__basicsize__ - pointers * calcsize("P")
    return hidden
