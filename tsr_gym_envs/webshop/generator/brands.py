"""Brands: invented names, and the habits by which the texts of a brand are alike."""

from dataclasses import dataclass
from functools import lru_cache

from tsr_gym_envs.webshop.generator.draws import Draws
from tsr_gym_envs.webshop.generator.vocabulary import vocabulary

# Brands of a family of products; the first are the most frequent.
NUM_BRANDS = 600
# How bullets may begin: a template with the headword and the sentence, and whether the headword is in capitals.
BULLETS = (
    ("{text}", False),
    ("{text}", False),
    ("{head}: {text}", False),
    ("{head}: {text}", True),
    ("{head} - {text}", True),
    ("【{head}】{text}", False),
    ("✔ {head}: {text}", True),
    ("★ {head} ★ {text}", False),
)


@dataclass(frozen=True, slots=True)
class Brand:
    """A brand.

    Attributes:
        name: Its name; empty for products without one.
        bullet: The template of its bullets.
        shouts: Whether headwords of bullets are in capitals.
        separator: What stands between the parts of its titles.
    """

    name: str
    bullet: str
    shouts: bool
    separator: str


def draw_brand(draws: Draws, seed: int, family: str) -> Brand:
    """Return a brand of a family of products; earlier ones are drawn more often."""
    return brand(seed, family, int(draws.quantile((0, 0.03, 0.14, 0.35, 1)) * NUM_BRANDS))


@lru_cache(maxsize=8192)
def brand(seed: int, family: str, number: int) -> Brand:
    """Return a brand by its number."""
    draws = Draws("brand", seed, family, number)
    starts, middles, ends, lasts = vocabulary().brand_parts
    name = draws.pick(starts) + draws.pick(middles) + draws.pick(ends)
    name = name.upper() if draws.chance(0.25) else name
    name = f"{name} {draws.pick(lasts)}" if draws.chance(0.12) else name
    bullet, shouts = draws.pick(BULLETS)
    return Brand(name, bullet, shouts, draws.pick((", ", ", ", ", ", " - ", " | ", "; ")))
