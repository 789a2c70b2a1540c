"""The words of the generator, read from ``words/*.toml``, and its random draws; no text of a product is in the code.

A category's file has its attributes by their role in a sentence, groups of attributes that exclude each other, and
families of kinds; a kind inherits the fields that it does not set from its family. See `Category`, `Family` and `Kind`.
Random streams depend on their purpose only, and product ids never repeat.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from tsr_gym.seeds import derive_seed

T = TypeVar("T")
# Numbers drawn at once, about as many as a product takes, because single draws from numpy are slow.
BLOCK = 192


class Draws:
    """Endless draws for one purpose.

    Equal parts give equal draws in every process.

    >>> Draws(0, "product", 7).below(1000) == Draws(0, "product", 7).below(1000)
    True
    """

    def __init__(self, *parts: int | str) -> None:
        self._units = _units(derive_seed("webshop", *parts))

    def below(self, count: int) -> int:
        """Return a uniform number from 0 to `count` - 1."""
        return int(next(self._units) * count)

    def chance(self, p: float) -> bool:
        """Return True with probability `p`."""
        return next(self._units) < p

    def pick(self, values: Sequence[T]) -> T:
        """Return a uniformly drawn value."""
        return values[int(next(self._units) * len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """Return `count` of some values, or all of fewer, in random order."""
        # A partial Fisher-Yates shuffle: only the first `count` places are filled.
        pool = list(values)
        for place in range(min(count, len(pool))):
            other = place + int(next(self._units) * (len(pool) - place))
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:count]

    def sample_early(self, values: Sequence[T], count: int) -> list[T]:
        """Return `count` of some values, or all of fewer; early values are more likely than late ones."""
        pool = list(values)
        return [pool.pop(int(next(self._units) ** 2 * len(pool))) for _ in range(min(count, len(pool)))]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """Return a number by its probability; `cumulative` has the running sums, the last of them 1."""
        unit = next(self._units)
        return next(number for number, bound in enumerate(cumulative) if unit < bound)

    def quantile(self, points: Sequence[float]) -> float:
        """Return a draw from the distribution with these equally spaced quantiles, straight lines between them."""
        place = next(self._units) * (len(points) - 1)
        lower = int(place)
        return points[lower] + (place - lower) * (points[lower + 1] - points[lower])


def _units(seed: int) -> Iterator[float]:
    rng = np.random.Generator(np.random.PCG64(seed))
    while True:
        yield from rng.random(BLOCK).tolist()


LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HALF = len(LETTERS) ** 4
ROUNDS = 4


def asin_of(seed: int, row: int) -> str:
    """Return the id of a row; different rows below 36**8 have different ids.

    The bijection is a Feistel network: each round adds to one half of the number a value that depends on the other half
    only, which can be subtracted again, so that no two numbers collide.

    >>> len({asin_of(0, row) for row in range(1000)})
    1000
    """
    left, right = divmod(row, HALF)
    for key in _keys(seed):
        left, right = right, (left + _mixed(right ^ key)) % HALF
    return "B0" + _digits(left) + _digits(right)


def _keys(seed: int) -> tuple[int, ...]:
    whole = derive_seed("webshop", "asins", seed)
    return tuple((whole >> (15 * number)) & 0x7FFF for number in range(ROUNDS))


def _mixed(value: int) -> int:
    """Return 32 well mixed bits (the finaliser of MurmurHash3)."""
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _digits(value: int) -> str:
    digits = ""
    for _ in range(4):
        value, digit = divmod(value, len(LETTERS))
        digits = LETTERS[digit] + digits
    return digits


CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
ROLES = ("adj", "with", "for")
ARTICLES = ("a", "an", "the")


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """An attribute of a product.

    Attributes:
        phrase: The attribute, such as "rubber sole".
        words: The same as part of a sentence, with its article: "a rubber sole".
        role: "adj" (before the noun), "with" or "for".
        says: Sentences about it.
        rivals: Words of the attributes that it excludes.
    """

    phrase: str
    words: str
    role: str
    says: tuple[str, ...]
    rivals: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class OptionSet:
    """Values that an option may have: see words/options.toml."""

    values: tuple[str, ...]
    is_run: bool
    codes: float
    pairs: float


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of product.

    Attributes:
        query: Its name, in the plural: "console tables".
        nouns: Its nouns in titles.
        leaf: Last part of its path of categories.
        is_mass: Whether the name is a singular, such as "popcorn".
        style: Words of titles before the noun.
        materials: Materials of products.
        details: Further parts of titles; {names} stand for numbers.
        attributes: Possible attributes of products.
        options: Names of option groups, most typical first, with the sets of their values.
    """

    query: str
    nouns: tuple[str, ...]
    leaf: str
    is_mass: bool
    style: tuple[str, ...]
    materials: tuple[str, ...]
    details: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    options: tuple[tuple[str, OptionSet], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Kinds with a shared description.

    Attributes:
        who: For whom, as titles begin: "Men's" or "".
        path: The middle of the path of categories.
        price: Quantiles of the price in dollars, equally spaced.
        numbers: Bounds of the numbers that texts name in braces.
        kinds: Its kinds.
        intro: First sentences of descriptions.
        says: Further sentences, each after a headword and a colon.
    """

    who: str
    path: str
    price: tuple[float, ...]
    numbers: tuple[tuple[str, int, int], ...]
    kinds: tuple[Kind, ...]
    intro: tuple[str, ...]
    says: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Category:
    """A top category.

    Attributes:
        name: Its name in products.
        prefix: First part of the path of categories.
        share: Its products in a thousand.
        groups: Running shares of products with 0, 1, 2 and 3 option groups.
        num_attributes: Equally spaced quantiles of the number of attributes.
        extras: Parts of titles without information.
        families: Its families.
    """

    name: str
    prefix: str
    share: float
    groups: tuple[float, ...]
    num_attributes: tuple[float, ...]
    extras: tuple[str, ...]
    families: tuple[Family, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """All words: the categories, and the words of all categories (words/common.toml)."""

    categories: tuple[Category, ...]
    openers: tuple[str, ...]
    requests: tuple[str, ...]
    closing: tuple[str, ...]
    related: tuple[str, ...]
    brand_parts: tuple[tuple[str, ...], ...]


def is_plural(noun: str) -> bool:
    """Return whether a noun of the vocabulary is a plural.

    >>> is_plural("Socks"), is_plural("Dress"), is_plural("Camera Lens")
    (True, False, False)
    """
    return noun.endswith("s") and not noun.endswith(("ss", "vas", "us", "is", "ens"))


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Return the vocabulary; it is read once a process."""
    common = _read("common")
    sets = {name: _option_set(table) for name, table in _read("options").items()}
    return Vocabulary(
        categories=tuple(_category(name, _read(name), sets) for name in CATEGORIES),
        openers=tuple(common["openers"]),
        requests=tuple(common["requests"]),
        closing=tuple(common["closing"]),
        related=tuple(common["related"]),
        brand_parts=tuple(tuple(common[part]) for part in ("starts", "middles", "ends", "lasts")),
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "words" / f"{name}.toml").read_text(encoding="utf-8"))


def _option_set(table: dict[str, Any]) -> OptionSet:
    is_run = "run" in table
    values = table["run"] if is_run else table["any"]
    return OptionSet(tuple(values), is_run, table.get("codes", 0.0), table.get("pairs", 0.0))


def _category(name: str, table: dict[str, Any], sets: dict[str, OptionSet]) -> Category:
    attributes = {}
    for role in ROLES:
        for words, says in table[role].items():
            # An attribute excludes all members of its groups.
            rivals = frozenset(rival for group in table["exclusive"] if words in group for rival in group)
            attributes[words] = Attribute(_phrase(words), words, role, tuple(says), rivals)
    return Category(
        name=name,
        prefix=table["prefix"],
        share=table["share"],
        groups=running_shares(table["groups"]),
        num_attributes=tuple(table["attributes"]),
        extras=tuple(table["extras"]),
        families=tuple(_family(family, attributes, sets) for family in table["family"]),
    )


def _phrase(words: str) -> str:
    article, _, rest = words.partition(" ")
    return rest if article in ARTICLES else words


def _family(table: dict[str, Any], attributes: dict[str, Attribute], sets: dict[str, OptionSet]) -> Family:
    return Family(
        who=table.get("who", ""),
        path=table["path"],
        price=tuple(table["price"]),
        numbers=tuple((name, low, high) for name, (low, high) in table.get("numbers", {}).items()),
        # A kind inherits the fields that it does not set.
        kinds=tuple(_kind(table | product_kind, attributes, sets) for product_kind in table["kinds"]),
        intro=tuple(table["intro"]),
        says=tuple(table["says"]),
    )


def _kind(table: dict[str, Any], attributes: dict[str, Attribute], sets: dict[str, OptionSet]) -> Kind:
    without = table.get("without", ())
    options = (line.split(" = ") for line in table["options"])
    return Kind(
        query=table["query"],
        nouns=tuple(table["nouns"]),
        leaf=table["leaf"],
        is_mass=table.get("mass", False),
        style=tuple(table["style"]),
        materials=tuple(table["materials"]),
        details=tuple(table["details"]),
        attributes=tuple(attributes[words] for words in table["attributes"] if words not in without),
        options=tuple((name, sets[values]) for name, values in options),
    )


def running_shares(weights: list[float]) -> tuple[float, ...]:
    """Return running sums of weights, scaled so that the last is 1.

    >>> running_shares([1, 1, 2])
    (0.25, 0.5, 1.0)
    """
    total = sum(weights)
    return tuple(value / total for value in accumulate(weights))
