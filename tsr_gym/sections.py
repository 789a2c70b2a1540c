"""Sections of a configuration: frozen dataclasses that check themselves, and are made from plain values by name.

A section may hold other sections. Names of settings are unique across all sections of a configuration, so a setting is
known by its name alone, as a flag, a keyword or a line of a file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from difflib import get_close_matches
from math import inf
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import Choice
from tsr_gym.ranges import check_counts, check_range

SectionT = TypeVar("SectionT")


def setting(default: Any = MISSING, *, metavar: str) -> Any:
    """Return the field of a setting whose help shows a word of its own for the value, such as CALL or FOLDER."""
    return field(default=default, metadata={"metavar": metavar})


def check_choices(section: Any) -> None:
    """Check the settings of a section that take a value out of a list.

    Raises:
        ConfigError: A value is not in the list of its setting.
    """
    values = values_of(section)
    for name, hint in get_type_hints(type(section)).items():
        if get_origin(hint) is Literal and values[name] not in get_args(hint):
            raise ConfigError(f"wanted {name} of {get_args(hint)}, got {values[name]!r}")


def check_numbers(
    section: Any, *names: str, least: float = -inf, most: float = inf, above: float | None = None, finite: bool = True
) -> None:
    """Check the ranges of numeric settings of a section; None passes.

    Args:
        section: A dataclass.
        names: Fields that hold numbers, None, or tuples of numbers.
        least: Smallest number.
        most: Largest number.
        above: Excluded lower bound.
        finite: Whether infinity is refused.

    Raises:
        ConfigError: A number is out of range, or is NaN.
    """
    values, hints = values_of(section), get_type_hints(type(section))
    for name in names:
        value = values[name]
        for number in value if isinstance(value, tuple) else (value,):
            if number is None:
                continue
            if _is_count(hints[name]):
                check_counts(least=int(least), **{name: number})
            check_range(least=least, most=most, above=above, finite=finite, **{name: number})


def _is_count(hint: Any) -> bool:
    """Return whether the annotation of a setting takes whole numbers only."""
    parts = [part for part in get_args(hint) if part not in (NoneType, Ellipsis)]
    return all(map(_is_count, parts)) if parts else hint is int


def values_of(section: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as they are."""
    return {item.name: attrgetter(item.name)(section) for item in fields(section)}


def settings_of(section: Any) -> dict[str, Any]:
    """Return all settings of a section and of the sections in it, by name."""
    flat: dict[str, Any] = {}
    for name, value in values_of(section).items():
        flat |= settings_of(value) if is_dataclass(value) else {name: value}
    return flat


def setting_fields(section: type[Any]) -> Iterator[tuple[tuple[str, ...], "Field[Any]", Any]]:
    """Yield every setting of a section type, those of its inner sections included.

    Yields:
        The names of the sections that it stands in, outermost first; its field; its type.
    """
    hints = get_type_hints(section)
    for item in fields(section):
        hint = hints[item.name]
        if isinstance(hint, type) and is_dataclass(hint):
            for path, inner, of_inner in setting_fields(hint):
                yield (item.name, *path), inner, of_inner
        else:
            yield (), item, hint


def build_section(section: type[SectionT], values: Mapping[str, Any]) -> SectionT:
    """Return a section made of plain values by name; a setting without a value has its default.

    Args:
        section: Its dataclass.
        values: By the names of settings, those of inner sections included.

    Raises:
        ConfigError: A name is unknown, a value has the wrong type, or the section refuses it.
    """
    names = [item.name for _, item, _ in setting_fields(section)]
    if unknown := [name for name in values if name not in names]:
        close = get_close_matches(unknown[0], names, 1)
        hint = f": did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(names))}"
        raise ConfigError(f"there is no setting {unknown[0]!r}{hint}")
    return _build(section, values)


def _build(section: type[SectionT], values: Mapping[str, Any]) -> SectionT:
    hints = get_type_hints(section)
    own: dict[str, Any] = {}
    for item in fields(section):  # type: ignore[arg-type]
        hint = hints[item.name]
        if isinstance(hint, type) and is_dataclass(hint):
            own[item.name] = _build(hint, values)
        elif item.name in values:
            own[item.name] = typed(values[item.name], hint, item.name)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"wanted a value for {item.name}, got none")
    return section(**own)


def typed(value: Any, hint: Any, name: str) -> Any:
    """Return a plain value, as TOML, JSON or Python have it, in the type of its setting.

    Args:
        value: A number, text, truth value, None, path, or a list or mapping of them.
        hint: The annotation of the setting.
        name: Of the setting, for messages.

    Raises:
        ConfigError: The value has another type.

    >>> typed([1, 2.5], tuple[float, float], "betas"), typed("runs/a", Path | None, "out")
    ((1.0, 2.5), PosixPath('runs/a'))
    """
    if get_origin(hint) in (Union, UnionType):
        if value is None and NoneType in get_args(hint):
            return None
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        return _typed_tuple(value, get_args(hint), name)
    if get_origin(hint) is Literal or hint is Any:
        # The section compares the value with its list.
        return value
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    wanted = str if hint is Choice else hint
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"wanted {name} as {_NAMES.get(wanted, wanted.__name__)}, got {value!r}")


_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


def _typed_tuple(value: Any, parts: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"wanted {name} as a list, got {value!r}")
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(typed(item, parts[0], name) for item in value)
    if len(value) != len(parts):
        raise ConfigError(f"wanted {name} as a list of {len(parts)}, got {len(value)}")
    return tuple(typed(item, part, name) for item, part in zip(cast(Any, value), parts, strict=True))
