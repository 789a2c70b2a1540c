"""How to make an equal environment again, here and in another process."""

import copy
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from tsr_gym.errors import CheckFailed
from tsr_gym.foreign.cameras import keep_contexts
from tsr_gym.optional import load
from tsr_gym.stack import env_support, replayable
from tsr_gym.testing.facts import layers_of, name_of

Factory = Callable[[], gym.Env[Any, Any]]


class Recipe(NamedTuple):
    """How to make an environment again.

    Attributes:
        build: Makes one in this process.
        order: What another process is told: ``{"factory": "module:name"}`` or ``{"spec": JSON}``, and
            ``"replayable": True`` where it has to be made so; None where there are no words for it.
    """

    build: Factory
    order: dict[str, Any] | None


def build(order: dict[str, Any]) -> gym.Env[Any, Any]:
    """Make the environment that an order names."""
    if "factory" in order:
        factory: Any = load(order["factory"])
        made: gym.Env[Any, Any] = factory()
    else:
        made = gym.make(EnvSpec.from_json(order["spec"]))
    return replayable(made) if order.get("replayable") else made


def supported(env: gym.Env[Any, Any], recipe: Recipe, seed: int) -> tuple[gym.Env[Any, Any], Recipe]:
    """Return an environment and its recipe in the form in which snapshots can be taken; it is reset on the way.

    Raises:
        CheckFailed: There is none; the message says why.
    """
    # Some things that an environment holds are there only after a reset.
    env.reset(seed=seed)
    support = env_support(env)
    if support.level == "none":
        raise CheckFailed("unsupported", f"{name_of(env.unwrapped)} has no exact snapshots: {support.reason}")
    if support.level != "replay":
        return env, recipe
    order = recipe.order and {**recipe.order, "replayable": True}
    return replayable(env), Recipe(lambda: replayable(recipe.build()), order)


def recipe_of(env: gym.Env[Any, Any], factory: Factory | str | None) -> Recipe:
    """Return how to make an environment again.

    Args:
        env: The environment.
        factory: What makes it: a function of a module, or its name as ``"module:name"``; None uses ``env.spec``.

    Raises:
        CheckFailed: There is neither a spec nor a factory, or what they make is not the same stack.
    """
    made = _from_spec(env) if factory is None else _from_factory(factory)
    recipe = made._replace(build=lambda: _kept_apart(made.build()))
    wanted, came = _names(env), _names(recipe.build())
    if wanted != came:
        raise CheckFailed(
            "rebuild",
            f"wanted {' < '.join(wanted)} again, got {' < '.join(came)}: pass factory=, a function that makes it",
        )
    return recipe


def _kept_apart(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    keep_contexts(env.unwrapped)
    return env


def _names(env: gym.Env[Any, Any]) -> list[str]:
    return [name_of(layer) for layer in layers_of(env)]


def _from_factory(factory: Factory | str) -> Recipe:
    if isinstance(factory, str):
        order = {"factory": factory}
        return Recipe(lambda: build(order), order)
    path = _path_of(factory)
    return Recipe(factory, None if path is None else {"factory": path})


def _path_of(factory: Any) -> str | None:
    """Return the name under which another process finds a function or class, None where it cannot."""
    if not isinstance(factory, FunctionType | type) or factory.__module__ == "__main__":
        return None
    module = sys.modules.get(factory.__module__)
    known = module is not None and vars(module).get(factory.__qualname__) is factory
    return f"{factory.__module__}:{factory.__qualname__}" if known else None


def _from_spec(env: gym.Env[Any, Any]) -> Recipe:
    if env.spec is None:
        raise CheckFailed(
            "rebuild",
            f"{name_of(env)} has no spec, so it cannot be made again: make it with gym.make, or pass factory=, a "
            "function of a module that makes it",
        )
    spec = env.spec

    def again() -> gym.Env[Any, Any]:
        try:
            made: gym.Env[Any, Any] = gym.make(spec)
        except (ValueError, TypeError, gym.error.Error) as error:
            raise CheckFailed("rebuild", f"gym.make(env.spec) failed ({error}): pass factory=") from error
        return made

    try:
        return Recipe(again, {"spec": _named(spec).to_json()})
    except (ValueError, TypeError):
        return Recipe(again, None)


def _named(spec: EnvSpec) -> EnvSpec:
    """Return a spec that names what makes the environment, where it holds a class or function of a module."""
    path = _path_of(spec.entry_point)
    if path is None:
        return spec
    named = copy.deepcopy(spec)
    named.entry_point = path
    return named
