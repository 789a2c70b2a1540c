"""Classes by the names under which bytes know them, found without importing or calling anything."""

import sys
from collections.abc import Callable, Set
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

from tsr_gym.errors import SnapshotError

OURS = frozenset({"tsr_gym", "tsr_gym_envs"})


def packages_of(cls: type) -> frozenset[str]:
    """Return the packages that a class and those that it inherits from belong to, Python's and Gymnasium's left out."""
    found = {str(base.__module__).partition(".")[0] for base in cls.__mro__}
    return frozenset(found - sys.stdlib_module_names - {"gymnasium"} | {str(cls.__module__).partition(".")[0]})


def find(module: object, name: object) -> Any:
    """Return what an imported module itself holds under a name, which may be dotted; None where there is nothing.

    Nothing is asked for it: modules and classes that make what they are asked for make nothing.
    """
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) else ("",):
        if isinstance(found, ModuleType):
            found = object.__getattribute__(found, "__dict__").get(part)
        else:
            found = type.__getattribute__(found, "__dict__").get(part) if isinstance(found, type) else None
        if isinstance(found, staticmethod):
            found = found.__func__
    return found


def find_class(module: str, name: str, packages: Set[str] | None) -> Any:
    """Return a class of an imported module by the name that it has itself, None where there is none.

    Args:
        module: The module.
        name: The class, dotted where it stands in another one.
        packages: The packages that the module may belong to, beside ours; None for any.

    Raises:
        SnapshotError: The module is not imported, or of another package.
    """
    if module not in sys.modules:
        raise SnapshotError(f"the value holds a {module}.{name}: import {module} first, or make its environment")
    if packages is not None and module.partition(".")[0] not in packages | OURS:
        raise SnapshotError(
            f"the value holds a {module}.{name}, which is not of the environment's own packages "
            f"{sorted(packages | OURS)}: refused"
        )
    cls = find(module, name)
    return cls if isinstance(cls, type) and (cls.__module__, cls.__qualname__) == (module, name) else None


class Record(NamedTuple):
    """How a dataclass or NamedTuple is taken apart and put together."""

    module: str
    name: str
    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    make: Callable[[tuple[Any, ...]], Any]


@lru_cache(maxsize=512)
def record_of(cls: Any) -> Record | None:
    """Return how a class is taken apart, None where it is neither a frozen dataclass nor a NamedTuple."""
    module, qualname = cls.__module__, cls.__qualname__
    if issubclass(cls, tuple) and "_fields" in vars(cls):
        names = tuple(vars(cls)["_fields"])
        return Record(module, qualname, names, tuple, lambda parts: cls(*parts))
    # A class that only inherits from a dataclass may hold more than its fields.
    if "__dataclass_params__" in vars(cls) and vars(cls)["__dataclass_params__"].frozen:
        names = tuple(item.name for item in fields(cls) if item.init)
        getters = [attrgetter(name) for name in names]
        return Record(
            module,
            qualname,
            names,
            lambda value: tuple(get(value) for get in getters),
            # By name, because fields may be keyword-only.
            lambda parts: cls(**dict(zip(names, parts, strict=True))),
        )
    return None
