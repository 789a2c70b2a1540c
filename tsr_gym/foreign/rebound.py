"""Functions that a copied wrapper holds, bound to the copy: else they would look at what the original wraps.

`AddRenderObservation`, for one, keeps a function with the wrapper itself in its closure.
"""

import types
from typing import Any

from tsr_gym.foreign.objects import attributes_of, set_attributes


def rebind(twin: Any, wrapper: Any) -> None:
    """Give a copy of a wrapper functions of its own wherever those of the original hold a layer of its stack.

    It also gets the attributes that its class leaves out of copies, as `ArrayConversion` does with its spaces.

    Args:
        twin: The copy, which wraps a stack of the same classes.
        wrapper: The original.
    """
    theirs = _layers_by_identity(wrapper, twin)
    held, there = attributes_of(wrapper), attributes_of(twin)
    set_attributes(twin, {name: item for name, item in held.items() if name not in there})
    set_attributes(twin, {name: _rebound(item, theirs) for name, item in held.items() if _holds(item, theirs, set())})


def _layers_by_identity(wrapper: Any, twin: Any) -> dict[int, Any]:
    """Return which layer of the copied stack stands for one of the original, by the identity of the latter."""
    found = {id(wrapper): twin}
    while "env" in attributes_of(wrapper) and "env" in attributes_of(twin):
        wrapper, twin = wrapper.env, twin.env
        found[id(wrapper)] = twin
    return found


def _holds(value: Any, theirs: dict[int, Any], seen: set[int]) -> bool:
    """Return whether a function is bound to a layer, or has one in its closure."""
    if isinstance(value, types.MethodType):
        return id(value.__self__) in theirs
    if not isinstance(value, types.FunctionType) or id(value) in seen:
        return False
    seen.add(id(value))
    held = [item for cell in value.__closure__ or () for item in _contents(cell)]
    return any(id(item) in theirs or _holds(item, theirs, seen) for item in held)


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """Return what a variable holds, nothing where it has no value yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _rebound(value: Any, theirs: dict[int, Any]) -> Any:
    """Return a function that holds the copies of layers; `theirs` gains what was copied on the way."""
    if id(value) in theirs:
        return theirs[id(value)]
    if isinstance(value, types.MethodType) and _holds(value, theirs, set()):
        return types.MethodType(value.__func__, theirs[id(value.__self__)])
    if not isinstance(value, types.FunctionType) or not _holds(value, theirs, set()):
        return value
    cells = tuple([theirs.setdefault(id(cell), types.CellType()) for cell in value.__closure__ or ()])
    made = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    made.__kwdefaults__, made.__qualname__, made.__module__ = value.__kwdefaults__, value.__qualname__, value.__module__
    # Before its variables are filled, one of which may hold the function itself.
    theirs[id(value)] = made
    for new, old in zip(cells, value.__closure__ or (), strict=True):
        for item in _contents(old):
            new.cell_contents = _rebound(item, theirs)
    return made
