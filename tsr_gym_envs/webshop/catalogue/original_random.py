"""What the original draws from Python's global generator, drawn from explicit ones: equal seeds, equal numbers.

The one file that imports `random`. Every function takes a `random.Random` or the state of one (`Dice`), so that nothing
outside is read or changed.
"""

import random
from array import array
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What `random.Random.getstate` returns: a value that a state of the environment can hold.
Dice = tuple[Any, ...]
Generator = random.Random

# The original puts its goals in order with this seed, whatever was drawn before.
ORDER_SEED = 233
NAME_LENGTH = 10


def generator_of(seed: int | Dice) -> Generator:
    """Return a generator that begins at a seed or stands at a state."""
    if isinstance(seed, int):
        return random.Random(seed)
    generator = random.Random(0)
    generator.setstate(seed)
    return generator


def draw_order(count: int) -> tuple[NDArray[np.int32], Dice]:
    """Return the order in which the original puts its goals, and where its generator stands afterwards."""
    generator = random.Random(ORDER_SEED)
    order = array("i", range(count))
    generator.shuffle(order)
    return np.frombuffer(order, np.int32) if count else np.empty(0, np.int32), generator.getstate()


def draw_name(generator: Generator) -> str:
    """Return the name of a session that was not given one."""
    return "".join(generator.choices(ascii_lowercase, k=NAME_LENGTH))


def draw_rows(generator: Generator, num_products: int, count: int = 50) -> tuple[int, ...]:
    """Return the products that the query ``<r>`` lists; the original fails where there are fewer than `count`."""
    return tuple(generator.sample(range(num_products), min(count, num_products)))
