"""Snapshots through a whole stack of wrappers: the one file that reaches into foreign classes.

Every layer must be known: our environments and wrappers say what their episode state is, Gymnasium's wrappers are
listed here, and anything else is refused by name, because a silent gap would be a wrong snapshot.
"""

import copy
from collections import deque
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import PassiveEnvChecker
from gymnasium.wrappers.utils import RunningMeanStd

from tsr_gym.errors import SnapshotError
from tsr_gym.snapshots import Layer, Snapshot
from tsr_gym.state_env import StateEnv

Noise = Literal["same", "fresh", "common"]
NOISES: tuple[Noise, ...] = ("same", "fresh", "common")
EnvT = TypeVar("EnvT", bound=gym.Env[Any, Any])


@runtime_checkable
class SnapshotWrapper(Protocol):
    """What a wrapper implements to take part in snapshots."""

    def wrapper_state(self) -> Any:
        """Return the wrapper's episode state as an immutable value, None if it has none."""

    def set_wrapper_state(self, state: Any) -> None:
        """Continue from a state that `wrapper_state` returned."""


# What decides the future of Gymnasium 1.4's wrappers, by attribute. The running means of the normalising wrappers do,
# although they span episodes. Records that nothing reads again (return queues) do not, and neither does the wall clock.
_EPISODE_STATE: dict[str, tuple[str, ...]] = {
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
_STATELESS = frozenset(
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
_ATOMS = frozenset({type(None), bool, int, float, str, bytes})
# What Gymnasium itself keeps on a wrapper that has nothing of its own.
_PLAIN_ATTRIBUTES = frozenset(
    {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_saved_kwargs"}
)
# What Gymnasium's wrappers change in place, so that a clone needs its own.
_CONTAINERS = (deque, list, dict, np.ndarray, RunningMeanStd)


class _Plan(NamedTuple):
    """How to read one wrapper class; `attributes` is None where the class speaks for itself."""

    kind: str
    attributes: tuple[str, ...] | None


@lru_cache(maxsize=256)
def _plan(cls: Any) -> _Plan | None:
    """Return how to read a wrapper class, or None where that depends on the object."""
    kind = f"{cls.__module__}:{cls.__qualname__}"
    if issubclass(cls, SnapshotWrapper):
        return _Plan(kind, None)
    if cls.__module__.startswith("gymnasium.wrappers."):
        if cls.__name__ in _EPISODE_STATE:
            return _Plan(kind, _EPISODE_STATE[cls.__name__])
        if cls.__name__ in _STATELESS:
            return _Plan(kind, ())
    return None


def _plan_of(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> _Plan:
    cls: Any = type(wrapper)
    plan = _plan(cls)
    if plan is not None:
        return plan
    own = sorted(set(vars(wrapper)) - _PLAIN_ATTRIBUTES)
    if own:
        raise SnapshotError(
            f"{cls.__name__} is a wrapper that tsr_gym does not know, and it holds {', '.join(own)}, which may be "
            "state of the episode. Give it two methods: wrapper_state() returns that state as an immutable "
            "value (None if there is none) and set_wrapper_state(state) puts it back; or put it outside the search"
        )
    return _Plan(f"{cls.__module__}:{cls.__qualname__}", ())


def _copied(value: Any) -> Any:
    return value if type(value) in _ATOMS else copy.deepcopy(value)


def _read(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> Layer:
    kind, attributes = _plan_of(wrapper)
    if attributes is None:
        return Layer(kind, wrapper.wrapper_state())  # type: ignore[attr-defined]
    return Layer(kind, tuple([_copied(attrgetter(name)(wrapper)) for name in attributes]))


def _write(wrapper: gym.Wrapper[Any, Any, Any, Any], layer: Layer) -> None:
    attributes = _plan_of(wrapper).attributes
    if attributes is None:
        wrapper.set_wrapper_state(layer.state)  # type: ignore[attr-defined]
        return
    for path, value in zip(attributes, layer.state, strict=True):
        owner, _, name = path.rpartition(".")
        setattr(attrgetter(owner)(wrapper) if owner else wrapper, name, _copied(value))
    if isinstance(wrapper, PassiveEnvChecker) and wrapper._previous_data is None:
        # A checker that never saw reset() would compare the next step with nothing; these share no objects with it.
        wrapper._previous_data = (None, {})


def _unstack(env: gym.Env[Any, Any]) -> tuple[list[gym.Wrapper[Any, Any, Any, Any]], StateEnv[Any, Any, Any]]:
    wrappers = []
    while isinstance(env, gym.Wrapper):
        wrappers.append(env)
        env = env.env
    if not isinstance(env, StateEnv):
        raise SnapshotError(
            f"{type(env).__name__} is not a tsr_gym.StateEnv, so its state cannot be read exactly: wanted an "
            "environment whose state is an immutable value"
        )
    return wrappers, env


def snapshot(env: gym.Env[Any, Any]) -> Snapshot:
    """Return everything that decides an environment's future, its wrappers included.

    Args:
        env: A `StateEnv`, bare or under any stack of Gymnasium's wrappers, ours, and others that implement
            `SnapshotWrapper`.

    Raises:
        SnapshotError: `reset` was not called yet, or a layer is not known and may hold hidden state.

    >>> import gymnasium as gym, tsr_gym
    >>> env = gym.make("tsr/Sokoban-v0")
    >>> _ = env.reset(seed=1)
    >>> before = tsr_gym.snapshot(env)
    >>> first = env.step("Up || Left")[:4]
    >>> tsr_gym.restore(env, before)
    >>> env.step("Up || Left")[:4] == first
    True
    """
    wrappers, base = _unstack(env)
    return Snapshot((*[_read(wrapper) for wrapper in wrappers], base._layer()))


def restore(env: gym.Env[Any, Any], snap: Snapshot, *, noise: Noise = "same", seed: int | None = None) -> None:
    """Continue from a snapshot of an equal stack, in place.

    The environment may be another object, also in another process, and need not have been reset. The settings of
    wrappers, such as a limit of steps, are not part of a snapshot: make the stacks alike.

    Args:
        env: A stack of the same wrappers over an environment with the same rules.
        snap: What `snapshot` returned.
        noise: ``"same"`` continues on the snapshot's own random numbers, an exact replay; a search that does so
            sees the future's dice. ``"fresh"`` and ``"common"`` draw new ones from `seed`: one seed per child, or one
            that siblings share.
        seed: Needed for fresh and common noise, refused for the same.

    Raises:
        SnapshotError: The snapshot belongs to another stack, other rules, or is damaged; nothing was changed.
        ValueError: Noise and seed contradict each other.
    """
    if noise not in NOISES:
        raise ValueError(f"wanted noise of {NOISES}, got {noise!r}")
    if (noise == "same") != (seed is None):
        raise ValueError(f"noise={noise!r} {'takes no' if noise == 'same' else 'needs a'} seed, got seed={seed!r}")
    wrappers, base = _unstack(env)
    layers = snap.layers
    plans = [_plan_of(wrapper) for wrapper in wrappers]
    kinds = [*[plan.kind for plan in plans], base._kind]
    if len(layers) != len(kinds) or any(layer.kind != kind for layer, kind in zip(layers, kinds, strict=False)):
        raise SnapshotError(
            f"wanted a snapshot of {' < '.join(kinds)}, got {' < '.join(layer.kind for layer in layers)}"
        )
    for plan, layer in zip(plans, layers, strict=False):
        wanted = plan.attributes
        if wanted is not None and not (isinstance(layer.state, tuple) and len(layer.state) == len(wanted)):
            raise SnapshotError(f"wanted {plan.kind} as {wanted}, got {layer.state!r}: damaged or of another version")
    base._check(layers[-1])
    base._apply(layers[-1], seed)
    # Innermost first, so that a wrapper may look at what it wraps.
    for wrapper, layer in zip(reversed(wrappers), reversed(layers[:-1]), strict=True):
        _write(wrapper, layer)


def clone(env: EnvT) -> EnvT:
    """Return an independent copy of a stack in the same state.

    Raises:
        SnapshotError: `reset` was not called yet, or a layer is not known.
    """
    snap = snapshot(env)
    twin: EnvT = _copy_stack(env)
    restore(twin, snap)
    return twin


def _copy_stack(env: Any) -> Any:
    if not isinstance(env, gym.Wrapper):
        return env.clone()
    twin = copy.copy(env)
    twin.env = _copy_stack(env.env)
    if _plan_of(env).attributes is not None:
        for name, value in vars(env).items():
            if name not in _PLAIN_ATTRIBUTES and isinstance(value, _CONTAINERS):
                setattr(twin, name, copy.deepcopy(value))
    return twin
