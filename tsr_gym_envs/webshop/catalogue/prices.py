"""What a product costs and how much an instruction allows: drawn as the original draws, or fixed by the product's id.

A limit is a tier: tier t allows 10 * t dollars, tier 0 names no limit.
"""

from itertools import combinations

from tsr_gym.seeds import derive_seed
from tsr_gym_envs.webshop.catalogue.original_random import Generator

NO_TIER = 0
NUM_TIERS = 99
# The original's limit where the instruction names none.
NO_LIMIT = 1_000_000
CANDIDATES = 4


def tiers_above(price: float) -> tuple[int, ...]:
    """Return the tiers that a limit for this price is drawn from: the first four above it.

    >>> tiers_above(955.0)
    (96, 97, 98, 99)
    """
    first = max(int(price // 10), 0) + 1
    return tuple(range(first, min(first + CANDIDATES, NUM_TIERS + 1)))


def limit_of(tier: int) -> float:
    """Return the most dollars that a tier allows."""
    return 10.0 * tier if tier else NO_LIMIT


def limit_text(tier: int) -> str:
    """Return what an instruction says of its limit.

    >>> limit_text(6)
    ', and price lower than 60.00 dollars'
    """
    return f", and price lower than {limit_of(tier):.2f} dollars" if tier else ""


def draw_price(low: float, high: float, generator: Generator) -> float:
    """Return the original's price of a product with a price range."""
    return generator.uniform(low, high)


def draw_tier(price: float, generator: Generator) -> int:
    """Return the original's tier for a price: the larger of two candidates, or none where there are not two."""
    candidates = tiers_above(price)
    return max(generator.sample(candidates, 2)) if len(candidates) >= 2 else NO_TIER


def stored_price(asin: str, prices: tuple[float, ...]) -> float:
    """Return the price that belongs to a product for good: the listed one, or a full cent of its range."""
    low, high = prices[0], prices[-1]
    share = derive_seed("webshop price", asin) / 2**63
    return low if low == high else round(low + (high - low) * share, 2)


def stored_tier(price: float, asin: str, number: int = 0) -> int:
    """Return the tier that belongs to an instruction for good, with the original's odds.

    Args:
        price: What the product costs.
        asin: Id of the product.
        number: Which of the product's instructions.
    """
    pairs = list(combinations(tiers_above(price), 2))
    return max(pairs[derive_seed("webshop limit", asin, number) % len(pairs)]) if pairs else NO_TIER
