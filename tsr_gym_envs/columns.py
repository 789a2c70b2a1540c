"""Arrays whose first axis counts environments, side by side in one buffer, so that one copy takes them all."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]


class Field(NamedTuple):
    """One column: its name, the type of its numbers, and how many of them an environment has; 1 needs no axis."""

    name: str
    dtype: type[Any]
    width: int = 1


Fields = tuple[Field, ...]
# Columns begin at multiples of so many bytes.
_ALIGNMENT = 64


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
        sizes = [num * field.width * np.dtype(field.dtype).itemsize for field in layout]
        starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]).tolist()
        self.buffer = np.zeros(starts[-1], np.uint8) if buffer is None else buffer
        if self.buffer.shape != (starts[-1],) or self.buffer.dtype != np.uint8:
            raise ValueError(f"wanted {starts[-1]} bytes, got {self.buffer.dtype} of shape {self.buffer.shape}")
        self.by_name: dict[str, Column] = {}
        for field, start, size in zip(layout, starts, sizes, strict=False):
            column = self.buffer[start : start + size].view(field.dtype)
            self.by_name[field.name] = column if field.width == 1 else column.reshape(num, field.width)


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
