"""The decorator of compiled functions, and their seeds; importing this module without numba raises MissingExtra.

A compiled function takes and returns plain arrays, NamedTuples of them, and numbers, and knows no environment.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from tsr_gym.optional import require

require("numba", "agents")

import numba  # noqa: E402

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# Purposes of the seeds that derive from a node's; the numbers of children lie below.
POLICY, DICE, TIE = 1 << 32, 2 << 32, 3 << 32
# The increment and the factors of splitmix64.
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE, _SHIFTS = np.uint64(1), (np.uint64(30), np.uint64(27), np.uint64(31))


def njit(function: FunctionT) -> FunctionT:
    """Return the function compiled to machine code, under its Python type."""
    return cast(FunctionT, numba.njit(cache=True)(function))


@njit
def derive(seed: Any, number: int) -> Any:
    """Return a seed for a numbered purpose of a seed, by the output function of splitmix64 (Steele et al. 2014)."""
    word = seed + (np.uint64(number) + _ONE) * _GOLDEN
    word = (word ^ word >> _SHIFTS[0]) * _FIRST
    word = (word ^ word >> _SHIFTS[1]) * _SECOND
    return word ^ word >> _SHIFTS[2]
