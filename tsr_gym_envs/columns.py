"""The arrays of a batch of environments in one buffer, copied in one step, and checks of a caller's arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from tsr_gym import ConfigError
from tsr_gym_envs.compiled import Bytes, Flags, Longs, all_below, njit

Column = NDArray[Any]


class Field(NamedTuple):
    """One column: its name, the type of its numbers, and how many of them an environment has; 1 needs no axis."""

    name: str
    dtype: type[Any]
    width: int = 1


Fields = tuple[Field, ...]
# Columns begin at multiples of this number of bytes, which is a cache line.
_ALIGNMENT = 64
# More actions than an episode can have.
NO_LIMIT = np.iinfo(np.int64).max


class Columns:
    """A buffer and its columns, by name, in the order of the layout.

    Args:
        layout: The columns.
        num: Number of environments.
        buffer: Bytes of earlier columns of this layout and number, None for zeros.

    Raises:
        ValueError: The buffer has another size.
    """

    def __init__(self, layout: Fields, num: int, buffer: NDArray[np.uint8] | None = None) -> None:
        self.widths = np.array([field.width * np.dtype(field.dtype).itemsize for field in layout])
        sizes = (num * self.widths).tolist()
        self.starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)])
        starts = self.starts.tolist()
        self.buffer = np.zeros(starts[-1], np.uint8) if buffer is None else buffer
        if self.buffer.shape != (starts[-1],) or self.buffer.dtype != np.uint8:
            raise ValueError(f"wanted {starts[-1]} bytes, got {self.buffer.dtype} of shape {self.buffer.shape}")
        self.by_name: dict[str, Column] = {}
        for field, start, size in zip(layout, starts, sizes, strict=False):
            # A view and not a copy: writing to a column writes to the buffer, so a snapshot is one copy of the buffer.
            column = self.buffer[start : start + size].view(field.dtype)
            self.by_name[field.name] = column if field.width == 1 else column.reshape(num, field.width)

    def copy_rows(self, rows: Longs, source: "Columns", into: Longs) -> None:
        """Make environment `into[j]` a copy of the source's `rows[j]`, all at once; numbers are not checked.

        Args:
            rows: `[R]` the source's environments to copy.
            source: Columns of the same layout, or these.
            into: `[R]` the environments to overwrite.
        """
        if source is self:
            # `take` copies all rows first. Copied row by row, a row could be overwritten before it is read.
            for column in self.by_name.values():
                column[into] = column.take(rows, axis=0)
        else:
            copy_bytes(source.buffer, source.starts, self.buffer, self.starts, self.widths, rows, into)


@njit
def copy_bytes(
    taken: Bytes, taken_starts: Longs, given: Bytes, given_starts: Longs, widths: Longs, rows: Longs, into: Longs
) -> None:
    """Copy rows of all columns from one buffer to another, for few rows five times as fast as numpy.

    Args:
        taken: Bytes to copy from.
        taken_starts: `[C + 1]` the offsets of its columns.
        given: Bytes to copy to; changed in place.
        given_starts: `[C + 1]` the offsets of its columns.
        widths: `[C]` bytes of a row of each column.
        rows: `[R]` the rows to copy.
        into: `[R]` the rows to overwrite.
    """
    for column in range(widths.size):
        width = widths[column]
        for number in range(rows.size):
            start, end = taken_starts[column] + rows[number] * width, given_starts[column] + into[number] * width
            for byte in range(width):
                # Unsigned indices spare the check for negative ones.
                given[np.uint64(end + byte)] = taken[np.uint64(start + byte)]


class BatchStep(NamedTuple):
    """The outcome of one step, `[N]` each; False and 0 for environments that rested."""

    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    facts: dict[str, Column]

    @classmethod
    def nothing(cls, num_envs: int) -> "BatchStep":
        """Return the outcome of a step in which all rest."""
        facts: dict[str, Column] = {"action_is_effective": np.zeros(num_envs, np.bool_)}
        return cls(np.zeros(num_envs), np.zeros(num_envs, np.bool_), facts)


@njit
def count_all(resting: Flags, terminated: Flags, limit: int, taken: Longs, over: Flags, truncated: Flags) -> None:
    """Count an action in environments that do not rest, and mark the episodes that it ended.

    Args:
        resting: `[N]` True for environments that rested.
        terminated: `[N]` True for ended tasks.
        limit: Most actions of an episode.
        taken: `[N]` actions taken; changed in place.
        over: `[N]` True for ended episodes; changed in place.
        truncated: `[N]` becomes True for episodes that the limit ended.
    """
    for env in range(resting.size):
        if not resting[env]:
            taken[env] += 1
            truncated[env] = taken[env] >= limit and not terminated[env]
            over[env] |= terminated[env] or truncated[env]


NUM_ACTIONS = 4
Indices = Sequence[int] | NDArray[np.int64]
Seeds = int | Sequence[int | None] | None


def as_actions(actions: Any, num_envs: int) -> Column:
    """Return actions `[N]`.

    Raises:
        InvalidAction: They are not `[N]` numbers from 0 to 3.
    """
    numbers = np.asarray(actions)
    whole = numbers.shape == (num_envs,) and numbers.dtype.kind in "iu"
    if not whole or not all_below(numbers.astype(np.int64, copy=False), NUM_ACTIONS):
        text = "; for text actions make the batch with vectorization_mode='sync' or 'async'"
        raise InvalidAction(
            f"wanted {num_envs} actions from 0 to {NUM_ACTIONS - 1}, got {actions!r}"
            f"{text if numbers.dtype.kind == 'U' else ''}"
        )
    return numbers.astype(np.int64, copy=False)


def as_mask(mask: Any, num_envs: int) -> Column:
    """Return the numbers of the environments that a mask `[N]` selects.

    Raises:
        ConfigError: It is not an array of `[N]` booleans.
    """
    if not (isinstance(mask, np.ndarray) and mask.shape == (num_envs,) and mask.dtype == np.bool_):
        raise ConfigError(f"wanted reset_mask as an array of {num_envs} booleans, got {mask!r}")
    return np.flatnonzero(mask)


def as_seeds(seed: Seeds, num_envs: int) -> Sequence[int | None]:
    """Return a seed or None for each environment; a number s stands for s, s + 1, ...

    Raises:
        ConfigError: There are not as many seeds as environments.
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + env for env in range(num_envs)]
    if len(seed) != num_envs:
        raise ConfigError(f"wanted a number or {num_envs} seeds, got {len(seed)}")
    return [None if number is None else int(number) for number in seed]


def as_numbers(indices: Indices, num_envs: int) -> NDArray[np.int64]:
    """Return numbers of environments.

    Raises:
        ConfigError: They are not numbers, or a number is out of range.
    """
    numbers = np.asarray(indices)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ConfigError(f"wanted the numbers of environments, got {indices!r}")
    numbers = numbers.astype(np.int64, copy=False)
    if not all_below(numbers, num_envs):
        raise ConfigError(f"wanted environments from 0 to {num_envs - 1}, got {indices!r}")
    return numbers


def as_targets(index: int, targets: int | Indices, num_envs: int) -> NDArray[np.int64]:
    """Return the numbers of the environments that become copies of one; a number n stands for the next n.

    Raises:
        ConfigError: A number is out of range, or there are too few environments.
    """
    source = as_numbers([index], num_envs)
    if not isinstance(targets, int):
        return as_numbers(targets, num_envs)
    if not 0 <= targets < num_envs:
        raise ConfigError(f"wanted at most {num_envs - 1} copies of one environment, got {targets}")
    return (source + 1 + np.arange(targets)) % num_envs
