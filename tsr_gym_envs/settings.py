"""Settings of an environment from keywords and a named preset, with errors that name what is known."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tsr_gym import ConfigError

SettingsT = TypeVar("SettingsT")


def settings_from(
    cls: Callable[..., SettingsT], presets: Mapping[str, Mapping[str, Any]], preset: str, given: Mapping[str, Any]
) -> SettingsT:
    """Return a settings dataclass: its defaults, changed by the preset, changed by what was given.

    Raises:
        ConfigError: The preset or a keyword is unknown.
    """
    if preset not in presets:
        raise ConfigError(f"wanted preset of {sorted(presets)}, got {preset!r}")
    known = [field.name for field in fields(cls) if field.name != "preset"]  # type: ignore[arg-type]
    if unknown := sorted(set(given) - set(known)):
        raise ConfigError(f"unknown settings {unknown}; known: {known}")
    # Lists come from JSON, as in a saved environment spec.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return cls(preset=preset, **{**presets[preset], **values})
