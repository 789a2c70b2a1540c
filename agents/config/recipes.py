"""Recipes and configuration files: settings as TOML, in tables named after the sections of `TrainConfig`."""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.agents.config.sections import tables
from tsr_gym.errors import ConfigError
from tsr_gym.files import read_regular
from tsr_gym.keywords import no_such
from tsr_gym.registration import env_id
from tsr_gym.wrappers.scorers import public_guide

# The value of the setting `score` that stands for the public guide of the world.
GUIDE = "guide"
# The keys at the top of a file, above its tables.
TOP = ("env", "recipe", "description", "without_guide", "worlds")


class ConfigFile(NamedTuple):
    """A TOML file of settings.

    Attributes:
        source: Its path, or the name of the recipe, for messages.
        settings: Values by the names of settings.
        env: The environment, where the file names one.
        recipe: The recipe that it builds on, where it names one.
        description: One line for lists of recipes.
        without_guide: The recipe to follow in a world without a public guide; empty to follow this one everywhere.
        worlds: More settings by environment id.
    """

    source: str
    settings: dict[str, Any]
    env: str | None = None
    recipe: str | None = None
    description: str = ""
    without_guide: str = ""
    worlds: Mapping[str, dict[str, Any]] = {}


def shipped_recipes() -> list[str]:
    """Return the names of the recipes that come with the package."""
    folder = files(__package__) / "recipes"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_recipe(name: str) -> ConfigFile:
    """Return a recipe of the package by its name, or one of the user's by the path of its TOML file.

    Raises:
        ConfigError: There is no such recipe, or its file is damaged.
    """
    if name.endswith(".toml"):
        return read_config_file(Path(name))
    if name not in shipped_recipes():
        raise no_such("recipe", name, shipped_recipes(), "the path of a TOML file")
    return parse_config((files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8"), f"recipe {name}")


def read_config_file(path: Path) -> ConfigFile:
    """Return the settings of a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not a configuration.
    """
    try:
        return parse_config(read_regular(path).decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: wanted a TOML file of settings, cannot read it ({error})") from error


def parse_config(text: str, source: str) -> ConfigFile:
    """Return the settings of a TOML text.

    Args:
        text: The text.
        source: Its path or name, for messages.

    Raises:
        ConfigError: The text is not TOML, or has an unknown table or setting.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{source}: wanted TOML, got {error}") from error
    top = {name: data.pop(name) for name in TOP if name in data}
    worlds = top.pop("worlds", {})
    if not isinstance(worlds, dict) or not all(isinstance(tables, dict) for tables in worlds.values()):
        raise ConfigError(f"{source}: wanted worlds as tables named after environments")
    for name, value in top.items():
        if not isinstance(value, str):
            raise ConfigError(f"{source}: wanted {name} as text, got {value!r}")
    of_worlds = {env_id(env): dict(_flat(tables, (), source)) for env, tables in worlds.items()}
    return ConfigFile(source, dict(_flat(data, (), source)), worlds=of_worlds, **top)


def recipe_settings(name: str, env: str, *, scored: bool) -> dict[str, Any]:
    """Return the settings of a recipe for an environment.

    Args:
        name: See `read_recipe`.
        env: Gymnasium id or short name.
        scored: Whether the user chose a score. A recipe that wants the public guide then uses the user's score.

    Raises:
        ConfigError: There is no such recipe, or it has an unknown setting.
    """
    recipe = read_recipe(name)
    if recipe.without_guide and not scored and public_guide(env) is None:
        recipe = read_recipe(recipe.without_guide)
    return recipe.settings | recipe.worlds.get(env_id(env), {})


def _flat(data: Mapping[str, Any], path: tuple[str, ...], source: str) -> Iterator[tuple[str, Any]]:
    """Yield name and value of every setting in nested tables."""
    inner = {section[: len(path) + 1] for section in tables().values() if len(section) > len(path)}
    for name, value in data.items():
        if isinstance(value, dict) and (*path, name) in inner:
            yield from _flat(value, (*path, name), source)
        elif tables().get(name) == path and path:
            yield name, value
        else:
            here = ".".join(path) or "the top of the file"
            choices = [item for item, section in tables().items() if section == path and path]
            choices += [section[-1] for section in inner if section[:-1] == path]
            place = tables().get(name)
            hint = f" (it belongs in [{'.'.join(place)}])" if place else ""
            raise ConfigError(f"{source}: {no_such(f'setting in {here}', name, choices or TOP, 'none')}{hint}")
