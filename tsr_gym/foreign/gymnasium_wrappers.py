"""Wrappers: which attributes of Gymnasium's wrappers decide the future, and the state that other wrappers declare."""

import copy
import types
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import PassiveEnvChecker
from gymnasium.wrappers.utils import RunningMeanStd

from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign.objects import attributes_of, set_attributes
from tsr_gym.snapshots import Layer
from tsr_gym.state_env import new_tuple


def rebind(twin: Any, wrapper: Any) -> None:
    """Replace functions of a copied wrapper that hold a layer of the original stack by functions that hold the copy's.

    Otherwise they would read the original: `AddRenderObservation`, for example, keeps a function with the wrapper in
        its closure. The copy also gets the attributes that its class leaves out of copies, such as the spaces of
        `ArrayConversion`.

    Args:
        twin: The copy, which wraps a stack of the same classes.
        wrapper: The original.
    """
    theirs = _layers_by_identity(wrapper, twin)
    held, there = attributes_of(wrapper), attributes_of(twin)
    set_attributes(twin, {name: item for name, item in held.items() if name not in there})
    set_attributes(twin, {name: _rebound(item, theirs) for name, item in held.items() if _holds(item, theirs, set())})


def _layers_by_identity(wrapper: Any, twin: Any) -> dict[int, Any]:
    """Return the layers of the copied stack by the identity of the original layers."""
    twins = {id(wrapper): twin}
    while "env" in attributes_of(wrapper) and "env" in attributes_of(twin):
        wrapper, twin = wrapper.env, twin.env
        twins[id(wrapper)] = twin
    return twins


def _holds(value: Any, theirs: dict[int, Any], seen: set[int]) -> bool:
    """Return whether a function is bound to a layer, or holds one in its closure."""
    if isinstance(value, types.MethodType):
        return id(value.__self__) in theirs
    if not isinstance(value, types.FunctionType) or id(value) in seen:
        return False
    seen.add(id(value))
    held = [item for cell in value.__closure__ or () for item in _contents(cell)]
    return any(id(item) in theirs or _holds(item, theirs, seen) for item in held)


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """Return the value of a variable as a tuple, which is empty where it has no value yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _rebound(value: Any, theirs: dict[int, Any]) -> Any:
    """Return a function that holds the copied layers. Functions and variables made on the way are added to `theirs`."""
    if id(value) in theirs:
        return theirs[id(value)]
    if isinstance(value, types.MethodType) and _holds(value, theirs, set()):
        return types.MethodType(value.__func__, theirs[id(value.__self__)])
    if not isinstance(value, types.FunctionType) or not _holds(value, theirs, set()):
        return value
    cells = tuple([theirs.setdefault(id(cell), types.CellType()) for cell in value.__closure__ or ()])
    made = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    made.__kwdefaults__, made.__qualname__, made.__module__ = value.__kwdefaults__, value.__qualname__, value.__module__
    # Store the function before its variables are filled, because a variable may hold the function.
    theirs[id(value)] = made
    for new, old in zip(cells, value.__closure__ or (), strict=True):
        for item in _contents(old):
            new.cell_contents = _rebound(item, theirs)
    return made


Wrapper = gym.Wrapper[Any, Any, Any, Any]


@runtime_checkable
class SnapshotWrapper(Protocol):
    """The methods that a wrapper implements to take part in snapshots."""

    def wrapper_state(self) -> Any:
        """Return the wrapper's episode state as an immutable value; None if it has none."""

    def set_wrapper_state(self, state: Any) -> None:
        """Continue from a state that `wrapper_state` returned."""


# The attributes of Gymnasium 1.4's wrappers that decide the future. The running means of the normalising wrappers are
# among them, although they span episodes. Records that nothing reads again (return queues) and the wall clock are not.
EPISODE_STATE: dict[str, tuple[str, ...]] = {
    "TimeLimit": ("_elapsed_steps",),
    "OrderEnforcing": ("_has_reset",),
    "Autoreset": ("autoreset",),
    "RecordEpisodeStatistics": ("episode_returns", "episode_lengths"),
    "TimeAwareObservation": ("timesteps",),
    "DelayObservation": ("observation_queue",),
    "FrameStackObservation": ("obs_queue",),
    "MaxAndSkipObservation": ("_obs_buffer",),
    "StickyAction": ("last_action", "is_sticky_actions", "num_repeats", "repeats_taken"),
    "NormalizeObservation": ("obs_rms.mean", "obs_rms.var", "obs_rms.count"),
    "NormalizeReward": ("discounted_reward", "return_rms.mean", "return_rms.var", "return_rms.count"),
    "AtariPreprocessing": ("lives", "game_over", "obs_buffer"),
    "RenderCollection": ("frame_list",),
}
STATELESS = frozenset(
    {
        "AddRenderObservation",
        "AddWhiteNoise",
        "ArrayConversion",
        "ClipAction",
        "ClipReward",
        "DiscretizeAction",
        "DiscretizeObservation",
        "DtypeObservation",
        "FilterObservation",
        "FlattenObservation",
        "GrayscaleObservation",
        "HumanRendering",
        "JaxToNumpy",
        "JaxToTorch",
        "NumpyToTorch",
        "ObstructView",
        "PassiveEnvChecker",
        "RepeatAction",
        "RescaleAction",
        "RescaleObservation",
        "ReshapeObservation",
        "ResizeObservation",
        "TransformAction",
        "TransformObservation",
        "TransformReward",
    }
)
REFUSED = {
    "RecordVideo": "it writes files, which a restore cannot undo, and a search would film imagined steps. Put it "
    "outside the search: around TreeSearchWrapper it films the episode that is played"
}
# The types of Gymnasium's counters and sums; which of them depends on the first value.
_NUMBERS = (bool, int, float, np.generic, np.ndarray)
_ATOMS = frozenset({type(None), bool, int, float, str, bytes})
# The attributes that every wrapper has from Gymnasium's base class.
_PLAIN_ATTRIBUTES = frozenset(
    {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_saved_kwargs"}
)
# Types that Gymnasium's wrappers change in place, so a clone needs separate objects.
_CONTAINERS = (deque, list, dict, np.ndarray, RunningMeanStd)


class WrapperAdapter(Protocol):
    """The interface to wrappers of one class."""

    @property
    def kind(self) -> str:
        """The name of the class in layers."""

    def read(self, wrapper: Any) -> Layer:
        """Return the episode state of a wrapper."""

    def check(self, wrapper: Any, layer: Layer) -> None:
        """Raise SnapshotError unless `write` accepts the layer."""

    def write(self, wrapper: Any, layer: Layer) -> None:
        """Set the state of a wrapper to that of a layer."""


class Nothing:
    """For a class without state: all its wrappers share one layer."""

    def __init__(self, class_name: str) -> None:
        self.kind = class_name
        self._layer = Layer(class_name, ())

    def read(self, wrapper: Any) -> Layer:
        """Return the shared layer."""
        return self._layer

    def check(self, wrapper: Any, layer: Layer) -> None:
        """Refuse a layer with state."""
        if layer is not self._layer and not (type(layer.state) is tuple and not layer.state):
            raise _damaged(layer, ())

    def write(self, wrapper: Any, layer: Layer) -> None:
        """Do nothing."""


class Checker(Nothing):
    """For Gymnasium's passive checker, which changes nothing but compares the first results."""

    def write(self, wrapper: Any, layer: Layer) -> None:
        """Give a checker that saw no reset() an earlier result, which it compares the next step with."""
        # Those of Gymnasium 1.2 compare nothing, and have no such attribute.
        if vars(wrapper).get("_previous_data", ()) is None:
            # A value that shares no object with any result.
            wrapper._previous_data = (None, {})


class Attributes:
    """For a class whose state is in attributes; their paths may have dots."""

    def __init__(self, class_name: str, paths: tuple[str, ...]) -> None:
        self.kind = class_name
        self._paths = paths
        self._getters = [attrgetter(path) for path in paths]
        self._places = [(number, *_place(path)) for number, path in enumerate(paths)]

    def read(self, wrapper: Any) -> Layer:
        """Return copies of the attributes."""
        return new_tuple(Layer, (self.kind, tuple([_copied(get(wrapper)) for get in self._getters])))

    def check(self, wrapper: Any, layer: Layer) -> None:
        """Refuse a layer that has not one value per attribute, of the attribute's type."""
        state = layer.state
        if not (type(state) is tuple and len(state) == len(self._paths)):
            raise _damaged(layer, self._paths)
        for get, value in zip(self._getters, state, strict=True):
            if not _is_compatible(get(wrapper), value):
                raise _damaged(layer, self._paths)

    def write(self, wrapper: Any, layer: Layer) -> None:
        """Set the attributes to copies."""
        for number, owner_of, name in self._places:
            setattr(owner_of(wrapper), name, _copied(layer.state[number]))


class Declared:
    """For a class that declares its state: a `SnapshotWrapper`."""

    def __init__(self, class_name: str) -> None:
        self.kind = class_name

    def read(self, wrapper: Any) -> Layer:
        """Return the state that the wrapper declares."""
        return new_tuple(Layer, (self.kind, wrapper.wrapper_state()))

    def check(self, wrapper: Any, layer: Layer) -> None:
        """Accept everything: only the wrapper knows its states."""

    def write(self, wrapper: Any, layer: Layer) -> None:
        """Pass the state to the wrapper."""
        wrapper.set_wrapper_state(layer.state)


def _place(path: str) -> tuple[Callable[[Any], Any], str]:
    """Return the owner of an attribute, as a function of the wrapper, and the attribute's name."""
    owner, _, name = path.rpartition(".")
    return (attrgetter(owner) if owner else _itself), name


def _itself(wrapper: Any) -> Any:
    return wrapper


class Unknown(Nothing):
    """For an unknown class: its wrappers are accepted while they hold no attributes but declared constants."""

    def read(self, wrapper: Any) -> Layer:
        """Return the shared layer."""
        _refuse(wrapper)
        return super().read(wrapper)

    def check(self, wrapper: Any, layer: Layer) -> None:
        """Refuse a layer with state."""
        _refuse(wrapper)
        super().check(wrapper, layer)


def _refuse(wrapper: Wrapper) -> None:
    """Raise SnapshotError where a wrapper of an unknown class has attributes that may be state, or cannot be undone."""
    name = type(wrapper).__name__
    if type(wrapper).__module__.startswith("gymnasium.wrappers.") and name in REFUSED:
        raise SnapshotError(f"{name} cannot take part in snapshots: {REFUSED[name]}")
    declared = getattr(wrapper, "snapshot_constants", ())
    own = sorted(set(vars(wrapper)) - _PLAIN_ATTRIBUTES - set(declared))
    if own:
        raise SnapshotError(
            f"{name} is a wrapper that tsr_gym does not know, and it holds {', '.join(own)}, which may be "
            "state of the episode. Give it two methods: wrapper_state() returns that state as an immutable "
            "value (None if it has none) and set_wrapper_state(state) restores it; or declare what never changes: "
            f"{name}.snapshot_constants = {tuple(own)!r}; or put it outside the search"
        )


def _is_compatible(old: Any, new: Any) -> bool:
    """Return whether an attribute may change from one value to another: equal types, two numbers, or None."""
    if type(old) is type(new) or old is None or new is None:
        return True
    return isinstance(old, _NUMBERS) and isinstance(new, _NUMBERS)


def _damaged(layer: Layer, wanted: tuple[str, ...]) -> SnapshotError:
    return SnapshotError(f"wanted {layer.kind} as {wanted}, got {shown(layer.state)}: damaged or of another version")


@lru_cache(maxsize=256)
def _adapter(cls: Any) -> WrapperAdapter:
    class_name = f"{cls.__module__}:{cls.__qualname__}"
    if issubclass(cls, SnapshotWrapper):
        return Declared(class_name)
    if cls is PassiveEnvChecker:
        return Checker(class_name)
    if cls.__module__.startswith("gymnasium.wrappers."):
        if cls.__name__ in EPISODE_STATE:
            return Attributes(class_name, EPISODE_STATE[cls.__name__])
        if cls.__name__ in STATELESS:
            return Nothing(class_name)
    return Unknown(class_name)


def wrapper_adapter_of(wrapper: Wrapper) -> WrapperAdapter:
    """Return the adapter of a wrapper.

    Raises:
        SnapshotError: Its class is unknown and it may have state, or its effects cannot be undone.
    """
    cls: Any = type(wrapper)
    adapter = _adapter(cls)
    if isinstance(adapter, Unknown):
        _refuse(wrapper)
    return adapter


def _copied(value: Any) -> Any:
    return value if type(value) in _ATOMS else copy.deepcopy(value)


def copied(wrapper: Wrapper, env: Any) -> Any:
    """Return a copy of a wrapper around another environment. The two share no mutable state."""
    twin: Any = copy.copy(wrapper)
    twin.env = env
    if not isinstance(wrapper_adapter_of(wrapper), Declared):
        for name, value in vars(wrapper).items():
            if name not in _PLAIN_ATTRIBUTES and isinstance(value, _CONTAINERS):
                setattr(twin, name, copy.deepcopy(value))
        rebind(twin, wrapper)
    return twin
