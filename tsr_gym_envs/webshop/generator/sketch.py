"""What a product is before anything is written about it."""

import re
from dataclasses import dataclass
from functools import lru_cache

from tsr_gym_envs.webshop.generator.brands import Brand, draw_brand
from tsr_gym_envs.webshop.generator.draws import Draws
from tsr_gym_envs.webshop.generator.options import Groups, draw_options
from tsr_gym_envs.webshop.generator.vocabulary import (
    Attribute,
    Category,
    Family,
    Kind,
    is_plural,
    running_shares,
    vocabulary,
)

# The share of products that are one more of a line: same brand, material and style as others of their kind.
IN_LINE = 0.45
NUM_LINES = 2
# Equally spaced quantiles of how often a kind occurs, compared with others of its category.
KIND_SHARES = (0.15, 0.35, 0.6, 0.8, 1.0, 1.25, 1.6, 2.6)
# Capitals behind a letter: "USB", "WiFi".
_INNER_CAPITAL = re.compile("(?<=[a-zA-Z])[A-Z]")


@dataclass(frozen=True, slots=True)
class Sketch:
    """What a product is.

    Attributes:
        category: Its top category.
        family: Its family of kinds.
        kind: Its kind.
        brand: Its brand.
        noun: The noun of its kind that it goes by.
        style: A word that titles put before the noun.
        material: What it is made of.
        attributes: What it is; the texts say some of it.
        options: Its option groups.
        slots: What stands for the names in braces in its sentences.
    """

    category: Category
    family: Family
    kind: Kind
    brand: Brand
    noun: str
    style: str
    material: str
    attributes: tuple[Attribute, ...]
    options: Groups
    slots: dict[str, str]


def draw_sketch(draws: Draws, seed: int) -> Sketch:
    """Return what a product is."""
    categories = vocabulary().categories
    category = categories[draws.weighted(_category_shares())]
    kinds, shares = _kinds(seed, category)
    family, kind = kinds[draws.weighted(shares)]
    look = Draws("line", seed, kind.query, draws.below(NUM_LINES)) if draws.chance(IN_LINE) else draws
    brand = draw_brand(look, seed, family.path)
    noun = look.pick(kind.nouns)
    style, material = look.pick(fitting_styles(kind, noun)), look.pick(kind.materials)
    slots = {name: str(low + draws.below(high - low + 1)) for name, low, high in family.numbers}
    code = f"{brand.name[:2].upper()}{100 + draws.below(900)}"
    slots |= _grammar(noun) | {"Brand": brand.name, "material": material, "code": code}
    attributes = draw_attributes(draws, category, kind)
    options = draw_options(draws, category.groups, kind.options, slots)
    return Sketch(category, family, kind, brand, noun, style, material, attributes, options, slots)


def draw_attributes(draws: Draws, category: Category, kind: Kind) -> tuple[Attribute, ...]:
    """Return what a product is, in random order; no two of it rule each other out."""
    count = int(draws.quantile(category.num_attributes) + 0.5)
    chosen: list[Attribute] = []
    ruled_out: frozenset[str] = frozenset()
    for attribute in draws.sample(kind.attributes, len(kind.attributes)) if count else ():
        if attribute.words not in ruled_out:
            chosen.append(attribute)
            ruled_out |= attribute.rivals
        if len(chosen) == count:
            break
    return tuple(chosen)


@lru_cache(maxsize=4096)
def fitting_styles(kind: Kind, noun: str) -> tuple[str, ...]:
    """Return the styles of a kind that do not repeat a word of a noun."""
    return tuple(style for style in kind.style if not set(style.split(" ")) & set(noun.split(" ")))


@lru_cache(maxsize=1)
def _category_shares() -> tuple[float, ...]:
    return running_shares([category.share for category in vocabulary().categories])


@lru_cache(maxsize=64)
def _kinds(seed: int, category: Category) -> tuple[list[tuple[Family, Kind]], tuple[float, ...]]:
    """Return the kinds of a category and the running shares of its products."""
    kinds = [(family, kind) for family in category.families for kind in family.kinds]
    draws = Draws("kinds", seed, category.name)
    return kinds, running_shares([draws.quantile(KIND_SHARES) for _ in kinds])


def _grammar(noun: str) -> dict[str, str]:
    """Return the words of sentences about a noun that depend on whether it is a plural."""
    name = lower(noun)
    if is_plural(noun):
        words = {"this": f"these {name}", "This": f"These {name}", "it": "they", "them": "them"}
        return words | {"noun": name, "is": "are", "has": "have", "s": ""}
    words = {"this": f"this {name}", "This": f"This {name}", "it": "it", "them": "it"}
    return words | {"noun": name, "is": "is", "has": "has", "s": "s"}


def lower(noun: str) -> str:
    """Return a noun as it stands within a sentence: in lower case, but for abbreviations.

    >>> lower("USB Cable"), lower("T-Shirt"), lower("WiFi Router")
    ('USB cable', 't-shirt', 'WiFi router')
    """
    return " ".join(word if _INNER_CAPITAL.search(word) else word.lower() for word in noun.split(" "))
