"""Ids of the environments, registered by strings so that importing tsr_gym stays cheap."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import no_such
from tsr_gym.optional import check_import, load
from tsr_gym.text_env import TextEnv

# The class of every world. Its module also has the function `make`, which Gymnasium calls: it reads the settings, and
# in the grid worlds it returns the array form of the class where the settings ask for arrays.
ENV_CLASSES = {
    "tsr/Countdown-v0": "tsr_gym_envs.countdown.env:CountdownEnv",
    "tsr/Database-v0": "tsr_gym_envs.database.env:DatabaseEnv",
    "tsr/FrozenLake-v0": "tsr_gym_envs.frozen_lake.env:FrozenLakeEnv",
    "tsr/RetrievalQA-v0": "tsr_gym_envs.retrieval_qa.env:RetrievalQAEnv",
    "tsr/Sokoban-v0": "tsr_gym_envs.sokoban.env:SokobanEnv",
    "tsr/WebShop-v0": "tsr_gym_envs.webshop.env:WebShopEnv",
}
# Worlds that need a separate extra, or a file of the user.
OPTIONAL_ENV_CLASSES = {
    "tsr/Jericho-v0": "tsr_gym_envs.jericho.env:JerichoEnv",
    "tsr/Shell-v0": "tsr_gym_envs.shell.env:ShellEnv",
    "tsr/TextArena-v0": "tsr_gym_envs.textarena.env:TextArenaEnv",
    "tsr/TextWorld-v0": "tsr_gym_envs.textworld.env:TextWorldEnv",
}


def _makers(classes: Mapping[str, str]) -> dict[str, str]:
    return {name: f"{path.partition(':')[0]}:make" for name, path in classes.items()}


ENTRY_POINTS = _makers(ENV_CLASSES)
OPTIONAL_ENTRY_POINTS = _makers(OPTIONAL_ENV_CLASSES)
VECTOR_ENTRY_POINTS = {
    "tsr/FrozenLake-v0": "tsr_gym_envs.frozen_lake.vector_env:make_vec",
    "tsr/Sokoban-v0": "tsr_gym_envs.sokoban.vector_env:make_vec",
}
SHORT_NAMES = {
    "countdown": "tsr/Countdown-v0",
    "database": "tsr/Database-v0",
    "frozen_lake": "tsr/FrozenLake-v0",
    "frozenlake": "tsr/FrozenLake-v0",
    "jericho": "tsr/Jericho-v0",
    "retrieval_qa": "tsr/RetrievalQA-v0",
    "shell": "tsr/Shell-v0",
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
    """Return the Gymnasium id of a short name such as ``"sokoban"``; other names are returned unchanged."""
    return SHORT_NAMES.get(name.lower(), name)


def find_env(name: str) -> EnvSpec:
    """Return the spec of a registered environment.

    Args:
        name: Gymnasium id, short name, or ``package.module:Id`` where importing the module registers the id.

    Raises:
        ConfigError: There is no such environment, or its module cannot or may not be imported (`importing_only`).
    """
    module, _, own = env_id(name).rpartition(":")
    try:
        if module and own not in gym.registry:
            check_import(module)
            import_module(module)
        return gym.spec(own)
    except ImportError as error:
        raise ConfigError(f"there is no environment {name!r} ({type(error).__name__}: {error})") from error
    except gym.error.Error as error:
        choices = sorted(set(SHORT_NAMES) - {"frozenlake"})
        raise no_such("environment", name, choices, "a Gymnasium id, or package.module:Id of yours") from error


def trusted_modules(name: str | None) -> tuple[str, ...]:
    """Return the module of an environment that the user named, for `importing_only`, after importing it.

    Raises:
        ConfigError: See `find_env`.
    """
    if name is None:
        return ()
    find_env(name)
    module = env_id(name).rpartition(":")[0]
    return (module,) if module else ()


def env_class(name: str) -> type[TextEnv[Any]] | None:
    """Return the class of a text environment without making one.

    Args:
        name: As in `find_env`.

    Returns:
        None where the id makes no `TextEnv`, or is registered with a function outside of this project.

    Raises:
        ConfigError: There is no such environment, or its module cannot be imported.

    >>> import tsr_gym
    >>> env_class("sokoban").__name__, env_class("CartPole-v1")
    ('SokobanEnv', None)
    """
    spec = find_env(name)
    path = ENV_CLASSES.get(spec.id) or OPTIONAL_ENV_CLASSES.get(spec.id)
    cls = _creator(name) if path is None else load(path)
    return cls if isinstance(cls, type) and issubclass(cls, TextEnv) else None


def accepted(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an environment's constructor takes.

    Args:
        name: As in `find_env`.
        settings: Settings by name.

    Raises:
        ConfigError: There is no such environment, or its module cannot be imported.

    >>> import tsr_gym
    >>> accepted("sokoban", {"preset": "paper", "split": "train"}), accepted("CartPole-v1", {"preset": "paper"})
    ({'preset': 'paper', 'split': 'train'}, {})
    """
    taken = _parameters(_creator(name))
    return {key: value for key, value in settings.items() if taken is None or key in taken}


def _creator(name: str) -> Any:
    """Return the class or function that Gymnasium calls to make an environment."""
    entry = find_env(name).entry_point
    try:
        return load_env_creator(entry) if isinstance(entry, str) else entry
    except ImportError as error:
        raise ConfigError(f"the environment {name!r} cannot be imported ({error})") from error


def _parameters(creator: Any) -> set[str] | None:
    """Return the names of a constructor's parameters, base classes included; None if it takes any name."""
    if not isinstance(creator, type):
        parameters = inspect.signature(creator).parameters.values()
        takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        return None if takes_any else {parameter.name for parameter in parameters}
    names: set[str] = set()
    for cls in creator.__mro__:
        if "__init__" not in vars(cls):
            continue
        own = inspect.signature(vars(cls)["__init__"]).parameters.values()
        names |= {parameter.name for parameter in own}
        if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in own):
            break
    return names
