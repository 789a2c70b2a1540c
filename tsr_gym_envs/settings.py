"""Settings of an environment: keywords, presets, and splits into train, validation and test instances.

The split of an instance is decided by the instance, not by its seed. Instances that are equal up to symmetry count as
one instance: their key is that of a form that all symmetries share.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from hashlib import blake2b
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from tsr_gym import ConfigError, UnknownSetting

SettingsT = TypeVar("SettingsT")
ACTION_TYPES = ("discrete", "text")
# By annotation: the accepted types of a value, and its name in errors.
_TYPES: dict[Any, tuple[tuple[type[Any], ...], str]] = {
    int: ((int, np.integer), "a whole number"),
    float: ((int, float, np.integer, np.floating), "a number"),
    bool: ((bool, np.bool_), "True or False"),
    str: ((str, os.PathLike), "text"),
    NoneType: ((NoneType,), "None"),
}


class FormSettings(Protocol):
    """The settings that decide how actions and observations are written."""

    @property
    def obs_type(self) -> str:
        """The form of an observation."""

    @property
    def action_type(self) -> str:
        """``"text"`` or ``"discrete"``."""

    @property
    def max_turns(self) -> int | None:
        """Turns of an episode."""

    @property
    def max_actions_per_turn(self) -> int | None:
        """Actions of a turn."""


def check_choices(**chosen: tuple[object, Collection[Any]]) -> None:
    """Raise ConfigError unless each setting, given by its name as value and choices, is one of its choices."""
    for name, (value, choices) in chosen.items():
        if value not in choices:
            raise ConfigError(f"wanted {name} of {sorted(choices)}, got {value!r}")


def settings_from(
    cls: Callable[..., SettingsT],
    presets: Mapping[str, Mapping[str, Any]],
    preset: str,
    given: Mapping[str, Any],
    *,
    discrete: Mapping[str, Any],
    arrays: Collection[str],
) -> SettingsT:
    """Return a settings dataclass: its defaults, overridden by the preset, overridden by the keywords.

    Args:
        cls: The dataclass.
        presets: Settings by the name of the preset.
        preset: Name of the preset.
        given: The keywords.
        discrete: Further defaults where actions are discrete; they win over the preset.
        arrays: Values of `obs_type` that are not text; they imply discrete actions.

    Raises:
        ConfigError: The preset is unknown.
        UnknownSetting: A keyword is unknown.
    """
    if not isinstance(preset, str) or preset not in presets:
        raise ConfigError(f"wanted preset of {sorted(presets)}, got {preset!r}")
    names = [field.name for field in fields(cls) if field.name != "preset"]  # type: ignore[arg-type]
    if unknown := sorted(set(given) - set(names)):
        # Clients such as torchrl try keywords, and drop one after Python's own words for it.
        raise UnknownSetting(f"unexpected keyword argument {unknown[0]!r}: unknown settings {unknown}; known: {names}")
    # Lists come from JSON, as in a saved environment spec.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    check_kinds(cls, values)
    # An array observation implies discrete actions, because text actions need text observations.
    is_discrete = values.get("action_type", "discrete" if values.get("obs_type") in arrays else "text") == "discrete"
    defaults = {**presets[preset], **({"action_type": "discrete", **discrete} if is_discrete else {})}
    return cls(preset=preset, **{**defaults, **values})


def check_kinds(cls: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise ConfigError if a value is not of its field's type: numbers, texts, None and tuples of them."""
    types = get_type_hints(cls)
    for name, value in given.items():
        if not _fits(value, types[name]):
            raise ConfigError(f"wanted {name} as {_named(types[name])}, got {value!r:.200}")


def _fits(value: object, annotation: Any) -> bool:
    if isinstance(annotation, UnionType):
        return any(_fits(value, choice) for choice in get_args(annotation))
    if get_origin(annotation) is Literal:
        # The settings check themselves which of the names are allowed, with an error that lists them.
        return isinstance(value, str)
    if get_origin(annotation) is tuple:
        parts = get_args(annotation)
        types = parts[:1] * len(value) if isinstance(value, tuple) and ... in parts else parts
        return isinstance(value, tuple) and len(value) == len(types) and all(map(_fits, value, types))
    # Python counts True as a number.
    return isinstance(value, _TYPES[annotation][0]) and (annotation is bool or not isinstance(value, bool))


def _named(annotation: Any) -> str:
    if isinstance(annotation, UnionType):
        return " or ".join(map(_named, get_args(annotation)))
    if get_origin(annotation) is tuple:
        first, *_ = parts = get_args(annotation)
        several = _named(first).removeprefix("a ") + "s"
        return several if ... in parts else f"{len(parts)} {several}"
    return _TYPES[str if get_origin(annotation) is Literal else annotation][1]


def check_form(settings: FormSettings, texts: Collection[str], arrays: Collection[str]) -> None:
    """Raise ConfigError if observations or actions are unknown or do not match."""
    forms = sorted([*texts, *arrays])
    if settings.obs_type not in forms:
        raise ConfigError(f"wanted obs_type of {forms}, got {settings.obs_type!r}")
    if settings.action_type not in ACTION_TYPES:
        raise ConfigError(f"wanted action_type of {list(ACTION_TYPES)}, got {settings.action_type!r}")
    if settings.action_type == "text" and settings.obs_type in arrays:
        raise ConfigError(
            f"text actions need text observations: wanted obs_type of {sorted(texts)}, got {settings.obs_type!r}; "
            "or take action_type='discrete'"
        )
    turns = (settings.max_turns, settings.max_actions_per_turn)
    if settings.action_type == "discrete" and turns != (None, None):
        raise ConfigError(
            f"each discrete action is a turn: wanted max_actions alone, got max_turns={turns[0]} and "
            f"max_actions_per_turn={turns[1]}"
        )


def actions_within(turns_left: int | None, actions_left: int | None, max_actions_per_turn: int | None) -> int | None:
    """Return the number of actions that an episode has left, None for any number.

    Args:
        turns_left: Turns that are left, None for any number.
        actions_left: Actions that are left, None for any number.
        max_actions_per_turn: Most actions in a turn, None for any number.

    >>> actions_within(2, 10, 3), actions_within(2, 10, None), actions_within(0, None, None)
    (6, 10, 0)
    """
    bounds = [] if actions_left is None else [actions_left]
    if turns_left is not None and (max_actions_per_turn is not None or turns_left == 0):
        bounds.append(turns_left * (max_actions_per_turn or 0))
    return min(bounds, default=None)


# Tenths of all instances by split. Generators of a split draw until an instance falls into it.
SPLITS = {"all": range(10), "train": range(8), "valid": range(8, 9), "test": range(9, 10)}


def in_split(canonical_key: bytes, split: str) -> bool:
    """Return whether an instance belongs to a split.

    Args:
        canonical_key: Bytes that all symmetric forms of the instance share.
        split: A key of `SPLITS`.
    """
    return blake2b(canonical_key, digest_size=8).digest()[0] % 10 in SPLITS[split]
