"""Arrays whose first axis counts environments, side by side in one buffer, so that one copy takes them all."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import Bytes, Flags, Longs, njit

Column = NDArray[Any]


class Field(NamedTuple):
    """One column: its name, the type of its numbers, and how many of them an environment has; 1 needs no axis."""

    name: str
    dtype: type[Any]
    width: int = 1


Fields = tuple[Field, ...]
# Columns begin at multiples of so many bytes.
_ALIGNMENT = 64
# More actions than an episode can have.
NO_LIMIT = np.iinfo(np.int64).max


class Columns:
    """A buffer and its columns, by name, in the order of the layout.

    Args:
        layout: What the columns are.
        num: How many environments.
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
            column = self.buffer[start : start + size].view(field.dtype)
            self.by_name[field.name] = column if field.width == 1 else column.reshape(num, field.width)

    def copy_rows(self, rows: Longs, source: "Columns", into: Longs) -> None:
        """Make environment `into[j]` a copy of the source's `rows[j]`, all at once; numbers are not checked.

        Args:
            rows: `[R]` which of the source's environments.
            source: Columns of the same layout, or these.
            into: `[R]` which become copies.
        """
        if source is self:
            # One by one, an environment that was already overwritten would be copied.
            for column in self.by_name.values():
                column[into] = column.take(rows, axis=0)
        else:
            copy_bytes(source.buffer, source.starts, self.buffer, self.starts, self.widths, rows, into)


@njit
def copy_bytes(
    taken: Bytes, taken_starts: Longs, given: Bytes, given_starts: Longs, widths: Longs, rows: Longs, into: Longs
) -> None:
    """Copy rows of all columns from one buffer to another; for few rows a fifth of what numpy takes.

    Args:
        taken: Bytes to copy from.
        taken_starts: `[C + 1]` where its columns begin.
        given: Bytes to copy to; changed in place.
        given_starts: `[C + 1]` where its columns begin.
        widths: `[C]` bytes of a row of each column.
        rows: `[R]` which rows are copied.
        into: `[R]` where to.
    """
    for column in range(widths.size):
        width = widths[column]
        for number in range(rows.size):
            start, end = taken_starts[column] + rows[number] * width, given_starts[column] + into[number] * width
            for byte in range(width):
                # Unsigned indices spare the check for negative ones.
                given[np.uint64(end + byte)] = taken[np.uint64(start + byte)]


class BatchStep(NamedTuple):
    """What one step did, `[N]` each; False and 0 where an environment rested."""

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
    """Count an action wherever nothing rests, and end the episodes that it ended.

    Args:
        resting: `[N]` which environments rested.
        terminated: `[N]` whose tasks ended.
        limit: Most actions of an episode.
        taken: `[N]` actions taken; changed in place.
        over: `[N]` which episodes have ended; changed in place.
        truncated: `[N]` becomes which episodes the limit ended.
    """
    for env in range(resting.size):
        if not resting[env]:
            taken[env] += 1
            truncated[env] = taken[env] >= limit and not terminated[env]
            over[env] |= terminated[env] or truncated[env]
