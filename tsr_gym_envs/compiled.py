"""The decorator of compiled functions; importing this module without numba raises MissingExtra.

A compiled function takes and returns plain arrays and numbers, never calls itself, and is cached on disk, so that only
the first process that uses it waits for the compiler. The cache notices changes of a function's own file only: whoever
edits one removes the cached callers in other files, ``*.nbi`` in `__pycache__`.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tsr_gym.optional import require

require("numba", "envs")

import numba  # noqa: E402

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


def njit(function: FunctionT) -> FunctionT:
    """Return the function compiled to machine code, under its Python type."""
    return cast(FunctionT, numba.njit(cache=True)(function))


@njit
def all_below(numbers: Longs, limit: int) -> bool:
    """Return whether all numbers are from 0 to below a limit."""
    below = True
    for index in range(numbers.size):
        below &= 0 <= numbers[index] < limit
    return below
