"""Environments made as another one was: beside it, or in its place."""

import copy
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.handles import holds_handles
from tsr_gym.foreign.objects import attributes_of

# What stays with an environment when it is made again in its place.
_KEPT = ("spec", "action_space", "observation_space", "_np_random", "_np_random_seed")


def fresh(env: Any, *, unseen: bool = False) -> Any:
    """Return a new environment, without wrappers, that was made as `env` was.

    Args:
        env: An environment without wrappers.
        unseen: Whether it must not open a window.

    Raises:
        SnapshotError: Nobody remembers how it was made, or it cannot be made again.
    """
    args, kwargs = _arguments(env)
    if unseen and kwargs.get("render_mode"):
        kwargs = kwargs | {"render_mode": None}
    try:
        if env.spec is not None:
            made = _creator(env)(**copy.deepcopy(kwargs)).unwrapped
            made.spec = copy.deepcopy(env.spec)
            return made
        return type(env)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    # The constructor of a foreign class may raise anything.
    except Exception as error:
        raise SnapshotError(f"another {type(env).__name__} could not be made: {error}") from error


def can_remake(env: Any) -> bool:
    """Return whether `remake` knows how."""
    try:
        _arguments(env)
    except SnapshotError:
        return False
    return env.spec is None or _creator(env) is type(env)


def remake(env: Any) -> None:
    """Make an environment again in its place; it keeps its generator, its spaces and its windows.

    Raises:
        SnapshotError: Its constructor raises; the environment is then as it was.
    """
    args, kwargs = _arguments(env)
    held = vars(env)
    before = dict(held)
    held.clear()
    try:
        type(env).__init__(env, *copy.deepcopy(args), **copy.deepcopy(kwargs))
    except Exception as error:
        held.clear()
        held.update(before)
        raise SnapshotError(f"{type(env).__name__} could not be made again: {error}") from error
    held.update({name: item for name, item in before.items() if name in _KEPT or holds_handles(item)})


def _creator(env: Any) -> Any:
    entry: Any = env.spec.entry_point
    return entry if callable(entry) else load_env_creator(entry)


def _arguments(env: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if env.spec is not None and env.spec.entry_point is not None:
        return (), dict(env.spec.kwargs)
    if isinstance(env, gym.utils.EzPickle):
        held = attributes_of(env)
        return held["_ezpickle_args"], dict(held["_ezpickle_kwargs"])
    raise SnapshotError(
        f"nobody knows how this {type(env).__name__} was made: make it with gymnasium.make, so that another can be"
    )
