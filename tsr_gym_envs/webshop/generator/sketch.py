"""The facts of a product before its texts are written: kind, brand, attributes and options."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tsr_gym_envs.webshop.generator.vocabulary import (
    Attribute,
    Category,
    Draws,
    Family,
    Kind,
    OptionSet,
    is_plural,
    running_shares,
    vocabulary,
)

# Brands of a family of products; the first are the most frequent.
NUM_BRANDS = 600
# Templates of bullets with headword and sentence, and whether the headword is in capitals.
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
        name: Its name, may be empty.
        bullet: The template of its bullets.
        shouts: Whether headwords of bullets are in capitals.
        separator: The text between the parts of its titles.
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


# Equally spaced quantiles of the number of values, for lists of sizes and for the others.
RUN_LENGTHS = (2, 3, 4, 5, 5, 5, 6, 6, 7, 9, 14)
ANY_LENGTHS = (2, 2, 3, 4, 5, 5, 6, 8, 10, 16, 36)
MAX_VALUES = 50
MAX_COMBINATIONS = 150
# The share of products that name an option without values, among those without options.
EMPTY = 0.19
# The share of lists of sizes that begin with the largest.
DESCENDING = 0.4
CODES = ("{letter}-{value}", "{letter}{number}-{value}", "{number}-{value}", "{value}{number}", "{letter}#{value}")

Groups = dict[str, list[str] | None]


def draw_options(
    draws: Draws, shares: Sequence[float], sources: Sequence[tuple[str, OptionSet]], slots: dict[str, str]
) -> Groups:
    """Return the values of each option group by name, None for a group without values.

    Args:
        draws: The source of choices.
        shares: Running shares of products with 0, 1, 2 and 3 groups.
        sources: Names of groups, most typical first, with the sets of their values.
        slots: Numbers that values can contain.
    """
    count = min(draws.weighted(shares), len(sources))
    if count == 0:
        return {draws.pick(sources)[0]: None} if draws.chance(EMPTY) else {}
    first = 0 if draws.chance(0.6) else draws.below(len(sources))
    picked = [sources[(first + number) % len(sources)] for number in range(count)]
    groups: Groups = {}
    left, combinations = MAX_VALUES, MAX_COMBINATIONS
    for number, (name, values) in enumerate(picked):
        # Every later group needs at least two values, so this one takes at most what leaves room for them.
        most = min(left - 2 * (count - number - 1), combinations // 2 ** (count - number - 1))
        groups[name] = drawn = draw_values(draws, values, most, slots)
        left, combinations = left - len(drawn), combinations // len(drawn)
    return groups


def draw_values(draws: Draws, source: OptionSet, most: int, slots: dict[str, str]) -> list[str]:
    """Return values of a group: neighbors in their order, or any; at least two and at most `most`."""
    values = source.values
    length = int(draws.quantile(RUN_LENGTHS if source.is_run else ANY_LENGTHS))
    length = max(2, min(length, most, len(values)))
    if source.is_run:
        # The middle of a list of sizes is more common than its ends.
        room = len(values) - length + 1
        first = (draws.below(room) + draws.below(room)) // 2
        run = [value.format_map(slots) for value in values[first : first + length]]
        return run[::-1] if draws.chance(DESCENDING) else run
    drawn = draws.sample_early(values, length)
    if draws.chance(source.codes):
        return with_codes(draws, drawn)
    return with_pairs(draws, drawn) if draws.chance(source.pairs) else drawn


def with_codes(draws: Draws, values: Sequence[str]) -> list[str]:
    """Return values with codes of the maker, as in "B2-Black", all different."""
    template = draws.pick(CODES)
    first = draws.below(40) + 1
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [
        template.format(letter=letters[number % len(letters)], number=first + number, value=value)
        for number, value in enumerate(values)
    ]


def with_pairs(draws: Draws, values: Sequence[str]) -> list[str]:
    """Return two-colored values as well, as in "Black/White", or with blanks "Black / White"."""
    slash = " / " if draws.chance(0.1) else "/"
    pairs = [first + slash + second for first, second in pairwise(value for value in values if "/" not in value)]
    return pairs + list(values[:1]) if pairs else list(values)


# The share of products that belong to a line: same brand, material and style as others of their kind.
IN_LINE = 0.45
NUM_LINES = 2
# Equally spaced quantiles of how often a kind occurs, compared with others of its category.
KIND_SHARES = (0.15, 0.35, 0.6, 0.8, 1.0, 1.25, 1.6, 2.6)
# Capitals behind a letter: "USB", "WiFi".
_INNER_CAPITAL = re.compile("(?<=[a-zA-Z])[A-Z]")


@dataclass(frozen=True, slots=True)
class Sketch:
    """The facts of a product.

    Attributes:
        category: Its top category.
        family: Its family of kinds.
        kind: Its kind.
        brand: Its brand.
        noun: Its noun among those of its kind.
        style: A word that titles put before the noun.
        material: Its material.
        attributes: Its attributes; the texts mention some of them.
        options: Its option groups.
        slots: The values of the names in braces in its sentences.
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
    """Return a random product."""
    categories = vocabulary().categories
    category = categories[draws.weighted(_category_shares())]
    kinds, shares = _kinds(seed, category)
    family, product_kind = kinds[draws.weighted(shares)]
    # Products of a line share a stream for brand, noun, style and material, so that a search finds several
    # similar products.
    look = Draws("line", seed, product_kind.query, draws.below(NUM_LINES)) if draws.chance(IN_LINE) else draws
    brand = draw_brand(look, seed, family.path)
    noun = look.pick(product_kind.nouns)
    style, material = look.pick(fitting_styles(product_kind, noun)), look.pick(product_kind.materials)
    slots = {name: str(low + draws.below(high - low + 1)) for name, low, high in family.numbers}
    code = f"{brand.name[:2].upper()}{100 + draws.below(900)}"
    slots |= _grammar(noun) | {"Brand": brand.name, "material": material, "code": code}
    attributes = draw_attributes(draws, category, product_kind)
    options = draw_options(draws, category.groups, product_kind.options, slots)
    return Sketch(category, family, product_kind, brand, noun, style, material, attributes, options, slots)


def draw_attributes(draws: Draws, category: Category, product_kind: Kind) -> tuple[Attribute, ...]:
    """Return the attributes of a product in random order; no two of them exclude each other."""
    count = int(draws.quantile(category.num_attributes) + 0.5)
    attributes: list[Attribute] = []
    ruled_out: frozenset[str] = frozenset()
    for attribute in draws.sample(product_kind.attributes, len(product_kind.attributes)) if count else ():
        if attribute.words not in ruled_out:
            attributes.append(attribute)
            ruled_out |= attribute.rivals
        if len(attributes) == count:
            break
    return tuple(attributes)


@lru_cache(maxsize=4096)
def fitting_styles(product_kind: Kind, noun: str) -> tuple[str, ...]:
    """Return the styles of a kind that do not repeat a word of a noun."""
    return tuple(style for style in product_kind.style if not set(style.split(" ")) & set(noun.split(" ")))


@lru_cache(maxsize=1)
def _category_shares() -> tuple[float, ...]:
    return running_shares([category.share for category in vocabulary().categories])


@lru_cache(maxsize=64)
def _kinds(seed: int, category: Category) -> tuple[list[tuple[Family, Kind]], tuple[float, ...]]:
    """Return the kinds of a category and the running shares of its products."""
    kinds = [(family, product_kind) for family in category.families for product_kind in family.kinds]
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
