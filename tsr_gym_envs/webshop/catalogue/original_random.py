"""The original's random numbers, drawn from explicit generators: equal seeds, equal numbers; and prices and limits.

This is the one file that imports `random`. Every function takes a `random.Random` or the state of one (`Dice`), so that
no global generator is read or changed. A limit is a tier: tier t allows 10 * t dollars, tier 0 names no limit.
"""

import random
from array import array
from itertools import combinations
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym.seeds import derive_seed

# The value of `random.Random.getstate`, which a state of the environment can hold.
Dice = tuple[Any, ...]
Generator = random.Random

# The original shuffles its goals with this seed, independent of earlier draws.
ORDER_SEED = 233
NAME_LENGTH = 10


def generator_of(seed: int | Dice) -> Generator:
    """Return a generator with a seed or a state."""
    if isinstance(seed, int):
        return random.Random(seed)
    generator = random.Random(0)
    generator.setstate(seed)
    return generator


def draw_order(count: int) -> tuple[NDArray[np.int32], Dice]:
    """Return the original's order of goals, and the state of its generator afterwards."""
    generator = random.Random(ORDER_SEED)
    order = array("i", range(count))
    generator.shuffle(order)
    return np.frombuffer(order, np.int32) if count else np.empty(0, np.int32), generator.getstate()


def draw_name(generator: Generator) -> str:
    """Return a random name for a session."""
    return "".join(generator.choices(ascii_lowercase, k=NAME_LENGTH))


def draw_rows(generator: Generator, num_products: int, count: int = 50) -> tuple[int, ...]:
    """Return the products that the query ``<r>`` lists; the original fails with fewer products than `count`."""
    return tuple(generator.sample(range(num_products), min(count, num_products)))


NO_TIER = 0
NUM_TIERS = 99
# The original's limit for an instruction without one.
NO_LIMIT = 1_000_000
CANDIDATES = 4


def tiers_above(price: float) -> tuple[int, ...]:
    """Return the tiers from which a limit for this price is drawn: the first four above it.

    >>> tiers_above(955.0)
    (96, 97, 98, 99)
    """
    first = max(int(price // 10), 0) + 1
    return tuple(range(first, min(first + CANDIDATES, NUM_TIERS + 1)))


def limit_of(tier: int) -> float:
    """Return the most dollars that a tier allows."""
    return 10.0 * tier if tier else NO_LIMIT


def limit_text(tier: int) -> str:
    """Return the words of an instruction about its limit.

    >>> limit_text(6)
    ', and price lower than 60.00 dollars'
    """
    return f", and price lower than {limit_of(tier):.2f} dollars" if tier else ""


def draw_price(low: float, high: float, generator: Generator) -> float:
    """Return the original's price of a product with a price range."""
    return generator.uniform(low, high)


def draw_tier(price: float, generator: Generator) -> int:
    """Return the original's tier for a price: the larger of two candidates, `NO_TIER` with fewer than two."""
    candidates = tiers_above(price)
    return max(generator.sample(candidates, 2)) if len(candidates) >= 2 else NO_TIER


def stored_price(asin: str, prices: tuple[float, ...]) -> float:
    """Return the fixed price of a product: the listed one, or a full cent within its range."""
    low, high = prices[0], prices[-1]
    share = derive_seed("webshop price", asin) / 2**63
    return low if low == high else round(low + (high - low) * share, 2)


def stored_tier(price: float, asin: str, number: int = 0) -> int:
    """Return the fixed tier of an instruction, with the original's odds.

    Args:
        price: Price of the product.
        asin: Id of the product.
        number: Number of the instruction among the product's.
    """
    pairs = list(combinations(tiers_above(price), 2))
    return max(pairs[derive_seed("webshop limit", asin, number) % len(pairs)]) if pairs else NO_TIER
