"""Sections of a configuration: frozen dataclasses that check themselves, and come back from JSON as they were."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tsr_gym.errors import ConfigError

SectionT = TypeVar("SectionT")


def check_choices(section: Any) -> None:
    """Check the settings of a section that are one of some words.

    Raises:
        ConfigError: One is none of its words.
    """
    values = asdict(section)
    for name, hint in get_type_hints(type(section)).items():
        if get_origin(hint) is Literal and values[name] not in get_args(hint):
            raise ConfigError(f"wanted {name} of {get_args(hint)}, got {values[name]!r}")


def check_numbers(
    section: Any,
    *names: str,
    least: float = -inf,
    most: float = inf,
    above: float | None = None,
    finite: bool = True,
) -> None:
    """Check the ranges of some numbers of a section; None is no number.

    Args:
        section: A dataclass.
        names: Of its fields, of numbers, None, or tuples of numbers.
        least: Smallest number.
        most: Largest number.
        above: Excluded lower bound.
        finite: Whether infinity is no number either.

    Raises:
        ConfigError: A number is out of range, or is NaN.
    """
    low = f">= {least:g}" if above is None else f"> {above:g}"
    words = low if most == inf else f"{low} and <= {most:g}"
    values = asdict(section)
    for name in names:
        value = values[name]
        for number in value if isinstance(value, tuple) else (value,):
            if number is None:
                continue
            if not (least <= number <= most and (number < inf or not finite) and (above is None or number > above)):
                raise ConfigError(f"wanted {name} {words}, got {number}")


def read_section(kind: type[SectionT], data: Mapping[str, Any], source: str) -> SectionT:
    """Return the section that `dataclasses.asdict` and JSON made of one.

    Args:
        kind: Its dataclass.
        data: What JSON holds.
        source: Where it stands, for messages.

    Raises:
        ConfigError: There are unknown settings, or a value is impossible.
        TypeError: Something is missing, or of another type.
    """
    hints = get_type_hints(kind)
    known = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(known)):
        raise ConfigError(f"{source}: unknown settings {unknown}; known: {sorted(known)}")
    return kind(**{name: _read(hints[name], value, f"{source}: {name}") for name, value in data.items()})


def _read(hint: Any, value: Any, source: str) -> Any:
    """Return a value of JSON as its field has it."""
    if value is None:
        return None
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if is_dataclass(hint) and isinstance(hint, type):
        return read_section(hint, value, source)
    if get_origin(hint) is tuple:
        return tuple(value)
    return Path(value) if hint is Path else value
