"""Stack facts: how the environment below a tree was made, written into the tree, and how it is made again.

Only environments that are registered and wrappers of this package or of Gymnasium are made from what a file says:
a file names nothing else that would be imported and called.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym

from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.foreign.recorder import ReplayRecorder
from tsr_gym.node import plain
from tsr_gym.optional import load
from tsr_gym.registration import find_env
from tsr_gym.tree import Tree

OURS = ("tsr_gym.wrappers.", "gymnasium.wrappers.")
BY_HAND = "Make the same stack in Python and call tsr_gym.wrappers.replay.replay(tree, env)"
# Of a spec, what decides which wrappers Gymnasium puts around an environment by itself.
MADE_WITH = ("kwargs", "max_episode_steps", "order_enforce", "disable_env_checker")


def stack_facts(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return how a stack can be made again, as JSON's own types; None where it has no id or holds objects."""
    spec = env.spec
    if spec is None:
        return None
    recorder = f"{ReplayRecorder.__module__}:{ReplayRecorder.__qualname__}"
    wrappers = [
        {"entry_point": one.entry_point, "kwargs": one.kwargs}
        for one in spec.additional_wrappers
        if one.entry_point != recorder
    ]
    facts = {**{name: vars(spec)[name] for name in MADE_WITH}, "wrappers": wrappers}
    try:
        return dict(json.loads(json.dumps(facts, default=plain)))
    except TypeError:
        return None


def stack_of(tree: Tree, name: str | None = None) -> gym.Env[Any, Any]:
    """Return an environment like the one that a tree was grown in, wrappers included.

    Args:
        tree: As it was loaded.
        name: The environment, such as ``my.module:My/Env-v0`` where a module must be imported first; None for the id
            that the tree names.

    Raises:
        ConfigError: The tree does not say how its environment was made, or that cannot be made here.
    """
    facts, env_id = tree.about.get("stack"), tree.about.get("env")
    if not isinstance(facts, dict) or not isinstance(env_id, str):
        raise ConfigError(
            "the tree does not say how its environment was made: an older version saved it, or a setting is an object. "
            f"{BY_HAND}"
        )
    spec = deepcopy(find_env(name or env_id))
    try:
        for field in MADE_WITH:
            vars(spec)[field] = facts[field]
        env = gym.make(spec)
        for wrapper in facts["wrappers"]:
            env = _wrapped(env, wrapper["entry_point"], wrapper["kwargs"])
    except (gym.error.Error, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, TsrGymError):
            raise
        raise ConfigError(f"{env_id} cannot be made as the tree says ({error})") from error
    return env


def _wrapped(env: gym.Env[Any, Any], entry_point: str, kwargs: Mapping[str, Any] | None) -> gym.Env[Any, Any]:
    if not entry_point.startswith(OURS) or kwargs is None:
        raise ConfigError(
            f"wanted wrappers of tsr_gym and gymnasium with plain settings, the tree names {entry_point}. {BY_HAND}"
        )
    wrap: Any = load(entry_point)
    if not (isinstance(wrap, type) and issubclass(wrap, gym.Wrapper)):
        raise ConfigError(f"{entry_point} is no wrapper: the tree is damaged")
    wrapped: gym.Env[Any, Any] = wrap(env, **kwargs)
    return wrapped
