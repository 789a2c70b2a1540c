"""Memory: all that an interpreter knows in the middle of a story, as what differs from the story's beginning."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Bytes of the Z-machine's memory, its stack included.
Cells = NDArray[np.uint8]


class Memory(NamedTuple):
    """An interpreter's memory, which is a few hundred bytes where the whole is forty thousand.

    Attributes:
        places: Where memory or stack differ from those of the story's beginning: little-endian uint32, ascending.
        values: The bytes that stand there.
        registers: Program counter, stack and frame pointer, frames, opcode, and the three numbers of the generator.
        shown: The text that the interpreter shows last, in its own encoding.
    """

    places: bytes
    values: bytes
    registers: tuple[int, ...]
    shown: bytes


def differences(cells: Cells, start: Cells) -> tuple[bytes, bytes]:
    """Return where cells differ from those of the start, and what they hold there.

    >>> start = np.zeros(9, np.uint8)
    >>> found = differences(np.array([0, 7, 0, 0, 0, 0, 0, 0, 5], np.uint8), start)
    >>> filled(*found, start).tolist()
    [0, 7, 0, 0, 0, 0, 0, 0, 5]
    """
    places = np.flatnonzero(cells != start)
    return places.astype("<u4").tobytes(), cells[places].tobytes()


def filled(places: bytes, values: bytes, start: Cells) -> Cells:
    """Return the cells that `differences` came from."""
    cells = start.copy()
    cells[np.frombuffer(places, "<u4")] = np.frombuffer(values, np.uint8)
    return cells


def can_be(memory: Any) -> bool:
    """Return whether a value has the form of a memory, as one that was read from bytes should."""
    return (
        type(memory) is Memory
        and isinstance(memory.places, bytes)
        and isinstance(memory.values, bytes)
        and isinstance(memory.shown, bytes)
        and len(memory.places) == 4 * len(memory.values)
    )
