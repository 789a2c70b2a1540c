"""Wrappers: what decides the future of Gymnasium's, by attribute, and what others say of themselves."""

import copy
from collections import deque
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import PassiveEnvChecker
from gymnasium.wrappers.utils import RunningMeanStd

from tsr_gym.errors import SnapshotError
from tsr_gym.snapshots import Layer

Wrapper = gym.Wrapper[Any, Any, Any, Any]


@runtime_checkable
class SnapshotWrapper(Protocol):
    """What a wrapper implements to take part in snapshots."""

    def wrapper_state(self) -> Any:
        """Return the wrapper's episode state as an immutable value, None if it has none."""

    def set_wrapper_state(self, state: Any) -> None:
        """Continue from a state that `wrapper_state` returned."""


# What decides the future of Gymnasium 1.4's wrappers, by attribute. The running means of the normalising wrappers do,
# although they span episodes. Records that nothing reads again (return queues) do not, and neither does the wall clock.
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
    "RecordVideo": "it writes files, which no restore takes back, and a search would film what it only imagines. Put "
    "it outside the search: around TreeSearchWrapper it films the episode that is played",
}
_ATOMS = frozenset({type(None), bool, int, float, str, bytes})
# What Gymnasium itself keeps on a wrapper that has nothing of its own.
_PLAIN_ATTRIBUTES = frozenset(
    {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_saved_kwargs"}
)
# What Gymnasium's wrappers change in place, so that a clone needs its own.
_CONTAINERS = (deque, list, dict, np.ndarray, RunningMeanStd)


class Plan(NamedTuple):
    """How to read one wrapper class.

    Attributes:
        kind: The class, as layers name it.
        attributes: What holds its state; None where the class speaks for itself.
        empty: The layer of a class that holds nothing, made once because most do; None for the others.
    """

    kind: str
    attributes: tuple[str, ...] | None
    empty: Layer | None = None


def _holding_nothing(kind: str) -> Plan:
    return Plan(kind, (), Layer(kind, ()))


@lru_cache(maxsize=256)
def _plan(cls: Any) -> Plan | None:
    """Return how to read a wrapper class, or None where that depends on the object."""
    kind = f"{cls.__module__}:{cls.__qualname__}"
    if issubclass(cls, SnapshotWrapper):
        return Plan(kind, None)
    if cls.__module__.startswith("gymnasium.wrappers."):
        if cls.__name__ in EPISODE_STATE:
            return Plan(kind, EPISODE_STATE[cls.__name__])
        if cls.__name__ in STATELESS:
            return _holding_nothing(kind)
    return None


def plan_of(wrapper: Wrapper) -> Plan:
    """Return how to read a wrapper.

    Raises:
        SnapshotError: It is not known and may hold state, or it cannot be undone.
    """
    cls: Any = type(wrapper)
    plan = _plan(cls)
    if plan is not None:
        return plan
    if cls.__module__.startswith("gymnasium.wrappers.") and cls.__name__ in REFUSED:
        raise SnapshotError(f"{cls.__name__} takes no part in snapshots: {REFUSED[cls.__name__]}")
    own = sorted(set(vars(wrapper)) - _PLAIN_ATTRIBUTES)
    if own:
        raise SnapshotError(
            f"{cls.__name__} is a wrapper that tsr_gym does not know, and it holds {', '.join(own)}, which may be "
            "state of the episode. Give it two methods: wrapper_state() returns that state as an immutable "
            "value (None if there is none) and set_wrapper_state(state) puts it back; or put it outside the search"
        )
    return _holding_nothing(f"{cls.__module__}:{cls.__qualname__}")


def _copied(value: Any) -> Any:
    return value if type(value) in _ATOMS else copy.deepcopy(value)


def read(wrapper: Wrapper) -> Layer:
    """Return the episode state of a wrapper.

    Raises:
        SnapshotError: The wrapper is not known.
    """
    kind, attributes, empty = plan_of(wrapper)
    if empty is not None:
        return empty
    if attributes is None:
        return Layer(kind, wrapper.wrapper_state())  # type: ignore[attr-defined]
    return Layer(kind, tuple([_copied(attrgetter(name)(wrapper)) for name in attributes]))


def check(plan: Plan, layer: Layer) -> None:
    """Raise SnapshotError unless `write` would accept a layer of this plan's kind."""
    wanted = plan.attributes
    if wanted is not None and not (isinstance(layer.state, tuple) and len(layer.state) == len(wanted)):
        raise SnapshotError(f"wanted {plan.kind} as {wanted}, got {layer.state!r}: damaged or of another version")


def write(wrapper: Wrapper, layer: Layer) -> None:
    """Give a wrapper the state of a layer."""
    attributes = plan_of(wrapper).attributes
    if attributes is None:
        wrapper.set_wrapper_state(layer.state)  # type: ignore[attr-defined]
        return
    for path, value in zip(attributes, layer.state, strict=True):
        owner, _, name = path.rpartition(".")
        setattr(attrgetter(owner)(wrapper) if owner else wrapper, name, _copied(value))
    if isinstance(wrapper, PassiveEnvChecker) and wrapper._previous_data is None:
        # A checker that never saw reset() would compare the next step with nothing; these share no objects with it.
        wrapper._previous_data = (None, {})


def copied(wrapper: Wrapper, env: Any) -> Any:
    """Return a wrapper like this one around another environment, sharing nothing that either changes."""
    twin: Any = copy.copy(wrapper)
    twin.env = env
    if plan_of(wrapper).attributes is not None:
        for name, value in vars(wrapper).items():
            if name not in _PLAIN_ATTRIBUTES and isinstance(value, _CONTAINERS):
                setattr(twin, name, copy.deepcopy(value))
    return twin
