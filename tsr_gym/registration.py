"""Ids of the environments, registered by strings so that importing tsr_gym stays cheap."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import no_such

ENTRY_POINTS = {
    "tsr/FrozenLake-v0": "tsr_gym_envs.frozen_lake.env:make",
    "tsr/RetrievalQA-v0": "tsr_gym_envs.retrieval_qa.env:make",
    "tsr/Sokoban-v0": "tsr_gym_envs.sokoban.env:make",
    "tsr/WebShop-v0": "tsr_gym_envs.webshop.env:make",
}
# Worlds that need an extra of their own, or a file of the user's.
OPTIONAL_ENTRY_POINTS = {
    "tsr/Jericho-v0": "tsr_gym_envs.jericho.env:make",
    "tsr/TextArena-v0": "tsr_gym_envs.textarena.env:make",
    "tsr/TextWorld-v0": "tsr_gym_envs.textworld.env:make",
}
VECTOR_ENTRY_POINTS = {
    "tsr/FrozenLake-v0": "tsr_gym_envs.frozen_lake.vector_env:make_vec",
    "tsr/Sokoban-v0": "tsr_gym_envs.sokoban.vector_env:make_vec",
}
# Scorers that tell progress without knowing the answer, as the command line writes them.
GUIDES = {
    "tsr/FrozenLake-v0": "FrozenLakeScore",
    "tsr/RetrievalQA-v0": "RetrievalQAScore(kind='novelty')",
    "tsr/Sokoban-v0": "SokobanScore(potential='next_push')",
    "tsr/TextWorld-v0": "TextWorldScore",
    "tsr/WebShop-v0": "WebShopScore(variant='attributes')",
}
SHORT_NAMES = {
    "frozen_lake": "tsr/FrozenLake-v0",
    "frozenlake": "tsr/FrozenLake-v0",
    "jericho": "tsr/Jericho-v0",
    "retrieval_qa": "tsr/RetrievalQA-v0",
    "sokoban": "tsr/Sokoban-v0",
    "textarena": "tsr/TextArena-v0",
    "textworld": "tsr/TextWorld-v0",
    "webshop": "tsr/WebShop-v0",
}


def register_envs() -> None:
    """Register every tsr/ id with Gymnasium; safe to call twice."""
    for env_id, entry_point in {**ENTRY_POINTS, **OPTIONAL_ENTRY_POINTS}.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, vector_entry_point=VECTOR_ENTRY_POINTS.get(env_id))


def env_id(name: str) -> str:
    """Return the Gymnasium id that a short name such as ``"sokoban"`` stands for; other names as they are."""
    return SHORT_NAMES.get(name.lower(), name)


def find_env(name: str) -> EnvSpec:
    """Return what Gymnasium knows of an environment.

    Args:
        name: Gymnasium id, short name, or ``package.module:Id`` where importing the module registers the id.

    Raises:
        ConfigError: There is no such environment, or its module cannot be imported.
    """
    module, _, own = env_id(name).rpartition(":")
    try:
        if module:
            import_module(module)
        return gym.spec(own)
    except ImportError as error:
        raise ConfigError(f"there is no environment {name!r} ({type(error).__name__}: {error})") from error
    except gym.error.Error as error:
        choices = sorted(set(SHORT_NAMES) - {"frozenlake"})
        raise no_such("environment", name, choices, "a Gymnasium id, or package.module:Id of yours") from error


def accepted(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some settings that an environment's constructor takes.

    Args:
        name: As in `find_env`.
        settings: By name.

    Raises:
        ConfigError: There is no such environment, or its module cannot be imported.

    >>> import tsr_gym
    >>> accepted("sokoban", {"preset": "paper", "split": "train"}), accepted("CartPole-v1", {"preset": "paper"})
    ({'preset': 'paper', 'split': 'train'}, {})
    """
    entry = find_env(name).entry_point
    try:
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
    except ImportError as error:
        raise ConfigError(f"the environment {name!r} cannot be imported ({error})") from error
    taken = _parameters(creator)
    return {key: value for key, value in settings.items() if taken is None or key in taken}


def _parameters(creator: Any) -> set[str] | None:
    """Return the names of a constructor's parameters, those of the classes it derives from too; None for any name."""
    if not isinstance(creator, type):
        parameters = inspect.signature(creator).parameters.values()
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        return None if takes_any else {one.name for one in parameters}
    names: set[str] = set()
    for kind in creator.__mro__:
        if "__init__" not in vars(kind):
            continue
        own = inspect.signature(vars(kind)["__init__"]).parameters.values()
        names |= {one.name for one in own}
        if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in own):
            break
    return names
