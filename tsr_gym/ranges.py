"""Checks of the numbers that users and their parts give: counts, limits, numbers of a range, finite numbers.

Comparisons with NaN are false and a slice with a large count is the whole list, so a wrong number that is not refused
here changes a result without an error.
"""

from math import inf, isfinite
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import ConfigError, NotFinite, named, shown


def check_counts(*, least: int = 1, **counts: Any) -> None:
    """Refuse counts that are not whole numbers, or too small.

    Raises:
        ConfigError: A count is refused; the message has its name.

    >>> check_counts(width=2, branching=1.5)
    Traceback (most recent call last):
    tsr_gym.errors.ConfigError: wanted branching as a whole number >= 1, got 1.5
    """
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or int(count) < least:
            raise ConfigError(f"wanted {name} as a whole number >= {least}, got {shown(count)}")


def check_limits(*, least: int = 1, **limits: Any) -> None:
    """Refuse limits that `check_counts` refuses; None is no limit.

    Raises:
        ConfigError: A limit is refused; the message has its name.
    """
    check_counts(least=least, **{name: limit for name, limit in limits.items() if limit is not None})


def check_range(
    *, least: float = -inf, most: float = inf, above: float | None = None, finite: bool = True, **numbers: Any
) -> None:
    """Refuse numbers out of a range.

    Args:
        least: Smallest number.
        most: Largest number.
        above: Excluded lower bound.
        finite: Whether infinity is refused. NaN always is.
        numbers: By name.

    Raises:
        ConfigError: A number is refused; the message has its name.
    """
    low = "finite" if least == -inf and above is None else f">= {least:g}" if above is None else f"> {above:g}"
    words = low if most == inf else f"{low} and <= {most:g}"
    for name, number in numbers.items():
        if (
            not isinstance(number, int | float | np.integer | np.floating)
            or isinstance(number, bool)
            or not (least <= number <= most and (above is None or number > above))
            or (finite and abs(number) == inf)
        ):
            raise ConfigError(f"wanted {name} {words}, got {shown(number)}")


def finite(value: Any, what: str, part: object = None) -> float:
    """Return a number that a part of a user gave, such as a score.

    Args:
        value: The number.
        what: Its name.
        part: The function or object that gave it, for the message.

    Raises:
        NotFinite: It is NaN, infinite, or no number.

    >>> finite(float("nan"), "the score", finite)
    Traceback (most recent call last):
    tsr_gym.errors.NotFinite: wanted the score by tsr_gym.ranges:finite as a finite number, got nan
    """
    try:
        number = float("nan" if isinstance(value, str | bytes) else value)
    except (TypeError, ValueError, OverflowError):
        number = inf
    if not isfinite(number):
        by = "" if part is None else f" by {named(part)}"
        raise NotFinite(f"wanted {what}{by} as a finite number, got {shown(value)}")
    return number


def finite_array(values: Any, what: str, part: object) -> NDArray[np.float64]:
    """Return an array of numbers that a part of a user gave.

    Raises:
        NotFinite: A number is NaN or infinite; the message has the place of the first.
    """
    numbers = np.asarray(values, np.float64)
    if not (sound := np.isfinite(numbers)).all():
        place = tuple(map(int, np.argwhere(~sound)[0]))
        raise NotFinite(f"wanted finite {what} by {named(part)}, got {numbers[place]} at {list(place)}")
    return numbers
