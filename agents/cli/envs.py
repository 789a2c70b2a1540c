"""`tsr envs`: environments with their settings, all scorers and all strategies, read from signatures."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import Shown, progress_bar, show_tables, with_json, write_json
from tsr_gym.errors import MissingExtra
from tsr_gym.optional import load
from tsr_gym.registration import ENTRY_POINTS, OPTIONAL_ENTRY_POINTS, SHORT_NAMES, find_env
from tsr_gym.wrappers.scorers import public_guide

EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class EnvsArgs:
    """List environments: ids, short names, settings with their defaults, scorers; and the strategies of searches."""

    env: Annotated[str | None, tyro.conf.Positional] = None
    """Only this environment: Gymnasium id, package.module:Id of your own, or a short name such as sokoban."""
    json: Path | None = None
    """File for the lists as JSON; without a file they are printed."""


def main(args: list[str]) -> int:
    """Read the signatures and print the lists."""
    options = read_arguments(EnvsArgs, with_json(args), prog="tsr envs")
    names = [*ENTRY_POINTS, *OPTIONAL_ENTRY_POINTS] if options.env is None else [options.env]
    with progress_bar("importing scorers, environments and strategies"):
        scorers = list_scorers()
        listing = {
            "environments": [describe_env(name, scorers) for name in names],
            "scorers": scorers,
            "strategies": list_strategies(),
        }
    if write_json(listing, options.json):
        show_tables(_tables(listing), words=True)
    return 0


def describe_env(name: str, scorers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the facts of an environment: names, missing extra, guide, scorers and settings. It is not made.

    Args:
        name: Gymnasium id, short name, or ``package.module:Id``.
        scorers: The scorers of `list_scorers`.

    Raises:
        ConfigError: There is no such environment.
    """
    spec = find_env(name)
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else inspect.getmodule(entry).__name__  # type: ignore[union-attr]
    needs, guide, settings = None, None, []
    try:
        guide = public_guide(name)
        settings = _settings_of(load(entry) if isinstance(entry, str) else entry)
    except (MissingExtra, ModuleNotFoundError) as error:
        needs = str(error) if isinstance(error, MissingExtra) else f"{error}: pip install 'tsr-gym[envs]'"
    world = module.rpartition(".")[0]
    return {
        "id": spec.id,
        "short_names": [short for short, long in SHORT_NAMES.items() if long == spec.id],
        "needs": needs,
        "guide": guide or "reward",
        "scorers": [scorer["name"] for scorer in scorers if scorer["world"] in ("any", world)],
        "settings": settings,
    }


def list_scorers() -> list[dict[str, Any]]:
    """Return the scorers: name, the world whose states they rate (``any`` for all), and their settings."""
    from tsr_gym.wrappers.scorers import known_scorers

    return [
        {"name": name, "world": world, "what": _first_line(scorer), "settings": _parameters(scorer, skip=1)}
        for name, (scorer, world) in known_scorers().items()
    ]


def list_strategies() -> list[dict[str, Any]]:
    """Return the strategies of searches: name, what each does, and its numbers."""
    from tsr_gym.agents.strategies import STRATEGIES

    module = vars(import_module(STRATEGIES))
    return [
        {"name": name, "what": _first_line(module[name]), "settings": _parameters(module[name], skip=1)}
        for name in module["__all__"]
    ]


def _settings_of(make: Any) -> list[dict[str, Any]]:
    """Return the settings of a constructor, with the defaults of its default preset.

    Constructors of this package take any keywords; these are the fields that `make_settings` of their module returns.
    """
    own = _parameters(make, skip=0)
    settle = vars(import_module(make.__module__)).get("make_settings")
    if settle is None:
        return own
    preset = inspect.signature(make).parameters["preset"].default
    settled, presets = settle(preset, {}), vars(import_module(settle.__module__))["PRESETS"]
    by_name = {item["name"]: item for item in own}
    by_name["preset"]["type"] = " | ".join(presets)
    more = {item["name"]: item for item in _parameters(type(settled), skip=0)}
    defaults = {item.name: {"default": value} for item, value in zip(fields(settled), astuple(settled), strict=True)}
    return own + [item | defaults[name] for name, item in more.items() if name not in by_name]


def _parameters(called: Callable[..., Any], skip: int) -> list[dict[str, Any]]:
    """Return the parameters of a callable after the first so many, without those that take anything."""
    loose = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = list(inspect.signature(called).parameters.values())[skip:]
    return [
        {
            "name": parameter.name,
            "type": "any" if parameter.annotation is EMPTY else words_of(parameter.annotation),
            "default": None if parameter.default is EMPTY else parameter.default,
            "required": parameter.default is EMPTY,
        }
        for parameter in parameters
        if parameter.kind not in loose
    ]


def words_of(hint: Any) -> str:
    """Return a type in words.

    >>> words_of(Literal["a", "b"] | None), words_of(tuple[int, int])
    ('a | b | None', 'tuple[int, int]')
    """
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if any(get_origin(part) is Literal for part in get_args(hint)):
        return " | ".join(map(words_of, get_args(hint))).replace("NoneType", "None")
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(hint))


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _tables(listing: Mapping[str, Any]) -> list[Shown]:
    worlds = listing["environments"]
    overview = [
        (world["id"], ", ".join(world["short_names"]), ", ".join(world["scorers"]), world["needs"] or "")
        for world in worlds
    ]
    tables = [Shown("environments", ("id", "short names", "scorers", "needs"), _escaped(overview))]
    for world in worlds:
        rows = [(item["name"], item["type"], _default(item)) for item in world["settings"]]
        tables.append(Shown(f"settings of {world['id']}", ("setting", "type", "default"), _escaped(rows)))
    for section in ("scorers", "strategies"):
        listed = [(item["name"], _call(item), item["what"]) for item in listing[section]]
        tables.append(Shown(section, ("name", "settings and defaults", "what"), _escaped(listed)))
    return [table for table in tables if table.rows]


def _default(item: Mapping[str, Any]) -> str:
    return "(required)" if item["required"] else repr(item["default"])


def _call(item: Mapping[str, Any]) -> str:
    return ", ".join(f"{setting['name']}={_default(setting)}" for setting in item["settings"])


def _escaped(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    # Square brackets would be read as styles.
    return [tuple(cell.replace("[", r"\[") for cell in row) for row in rows]
