"""The reward of a purchase: the share of a goal's wishes that it meets, times a factor for the product's kind.

`score_purchase` is the original's reward bit for bit under ``rules="original"``, and without its three defects under
``rules="fixed"``; each repair is a separate switch (`tsr_gym_envs.webshop.repairs`). `token_set_ratio` and
`normalize_color` are the original's, number for number; `same_value` and `fits_best` replace them in the repaired
reward.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from rapidfuzz import fuzz

from tsr_gym import ConfigError
from tsr_gym_envs.webshop.catalogue.product import GoalOption
from tsr_gym_envs.webshop.catalogue.store import word_list
from tsr_gym_envs.webshop.repairs import Repairs, repairs_of

# The original's colours. The first one in a value stands for the value, so the order matters.
COLORS = word_list("colors")
# Two phrases match above this ratio.
CLOSE = 85
_LATIN_1 = dict.fromkeys(range(0x80, 0x100))


def normalize_color(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the first colour in a value, or the value itself.

    In a str a colour counts anywhere, even inside a word; in a tuple only as an element. Both are the original's rules.

    >>> normalize_color("infrared"), normalize_color(("color", "navy blue")), normalize_color(("color", "blue"))
    ('red', ('color', 'navy blue'), 'blue')
    """
    return next((color for color in COLORS if color in value), value)


@lru_cache(maxsize=1 << 16)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(re.sub(r"\W", " ", text.translate(_LATIN_1)).lower().split())


def _as_text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else str(value)


def _joined(first: str, second: str) -> tuple[str, str, str] | None:
    """Return shared tokens, first and second text as the token set ratio compares them; None if a text is empty."""
    left, right = _tokens(first), _tokens(second)
    if not left or not right:
        return None
    shared = " ".join(sorted(left & right))
    return (
        shared,
        f"{shared} {' '.join(sorted(left - right))}".strip(),
        f"{shared} {' '.join(sorted(right - left))}".strip(),
    )


def _ratio(first: str, second: str) -> int:
    if not first or not second:
        return 0
    return 100 if first == second else round(100 * SequenceMatcher(None, first, second).ratio())


def token_set_ratio(first: str | tuple[str, ...], second: str | tuple[str, ...]) -> int:
    """Return the similarity of two phrases, 0 to 100, in any order of words; 100 if one contains the other.

    It equals thefuzz 0.19 over `difflib`, which the original uses; later versions differ by a few points.

    >>> token_set_ratio("5", ("size", "5.5")), token_set_ratio("light weight", "lightweight")
    (100, 96)
    """
    texts = _joined(_as_text(first), _as_text(second))
    if texts is None:
        return 0
    shared, left, right = texts
    return max(_ratio(shared, left), _ratio(shared, right), _ratio(left, right))


@lru_cache(maxsize=1 << 16)
def _close(first: str, second: str) -> bool:
    texts = _joined(first, second)
    if texts is None:
        return False
    shared, left, right = texts
    # rapidfuzz counts the longest common subsequence, difflib only blocks of one, so its ratio is never smaller. It is
    # twenty times as fast, and rules out most pairs before difflib is used.
    pairs = [pair for pair in ((shared, left), (shared, right), (left, right)) if fuzz.ratio(*pair) > CLOSE]
    return any(_ratio(*pair) > CLOSE for pair in pairs)


def close(first: str | tuple[str, ...], second: str | tuple[str, ...]) -> bool:
    """Return whether two phrases match: a token set ratio above 85."""
    return _close(_as_text(first), _as_text(second))


@lru_cache(maxsize=1 << 16)
def _plain(value: str) -> str:
    return " ".join(re.sub(r"[|/]", " | ", value).casefold().split())


def same_value(first: str, second: str) -> bool:
    r"""Return whether two option values are equal up to case, blanks, and "/" written as "|".

    >>> same_value("A2-Army\xa0Green", "a2-army green"), same_value("30/32", "30 | 32"), same_value("5", "5.5")
    (True, True, False)
    """
    return _plain(first) == _plain(second)


@lru_cache(maxsize=1 << 16)
def _words(value: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\s,;()|]+", _plain(value)))


def fits_best(value: str, wanted: str, offered: Iterable[str]) -> bool:
    """Return whether a value is the best fit for a wish in people's words.

    The best fit is the same value; if no such value is offered, a value with all words of the wish and the fewest other
    words. Words end at blanks, commas and brackets, so that "5.5" and "x-large" are one word each.

    >>> fits_best("navy blue", "blue", ["navy blue", "red"]), fits_best("navy blue", "blue", ["navy blue", "blue"])
    (True, False)
    """
    if same_value(value, wanted):
        return True
    words = _words(wanted)
    if not words or not words <= _words(value):
        return False
    rivals = [other for other in offered if words <= _words(other)]
    fewest = min(len(_words(other)) for other in [value, *rivals])
    return len(_words(value)) == fewest and not any(same_value(other, wanted) for other in rivals)


# Title to nouns in lower case, repetitions included.
NounFn = Callable[[str], Sequence[str]]


class KindRating(NamedTuple):
    """The rating of a product's kind against the goal's.

    Attributes:
        r_type: The factor of the reward: 1, 0.5, 0.1 or 0.
        query_match: Both were crawled by the same query.
        category_match: Their paths of categories share two parts or more.
        title_score: The share of the wanted title's nouns that are in the bought one's.
    """

    r_type: float
    query_match: bool
    category_match: bool
    title_score: float


# What is reported of the reward before a purchase: the types of `score_purchase`.
NO_PURCHASE: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("r_type", "r_att", "w_att", "title_score", "r_option", "w_option", "w_price"), 0.0),
        **dict.fromkeys(("query_match", "category_match", "r_price"), False),
        **dict.fromkeys(("num_attr_matches", "num_option_matches"), 0),
    }
)


def score_purchase(
    goal: Mapping[str, Any],
    product: Mapping[str, Any],
    options: Mapping[str, str],
    price: float,
    *,
    rules: str | Repairs = "fixed",
    noun_fn: NounFn,
) -> dict[str, Any]:
    """Return the reward of a purchase and its parts.

    Args:
        goal: A goal with the original's field names (`Goal.as_original`).
        product: A product with the original's field names (`Product.as_original`). Fields of the crawled files serve
            where the original's are missing: name, full_description, small_description.
        options: The chosen values by the names of their groups.
        price: The product's price in dollars.
        rules: ``"fixed"``, ``"original"``, or single repairs.
        noun_fn: A function from a title to its nouns, see `tsr_gym_envs.webshop.catalogue.store.open_nouns`.

    Returns:
        The original's keys ``reward``, ``r_type``, ``r_att``, ``w_att``, ``query_match``, ``category_match``,
        ``title_score``, ``r_option`` and ``w_option`` (only where the goal asks for options), ``r_price``,
        ``w_price``; and ``num_attr_matches``, ``num_option_matches``, ``success``. Where a goal asks for no
        attributes, ``r_att`` is 1.0 and weighs nothing; the original divides by zero there.

    Raises:
        ConfigError: The goal's limit is not above zero, so that nothing could be bought for it.
    """
    if goal["price_upper"] <= 0:
        raise ConfigError(f"wanted a goal with price_upper above 0, got {goal['price_upper']}: 1000000 stands for none")
    repairs = repairs_of(rules)
    attributes, wanted = goal["attributes"], wanted_options(goal)
    rating = rate_kind(goal, product, noun_fn, symmetric=repairs.symmetric_titles)
    num_attributes = count_attributes(attributes, product)
    # A product without listed options, such as a crawled record, offers the values that were chosen.
    offered = [value for values in (product.get("options") or {}).values() for value in values]
    num_options = count_options(wanted, options, offered or list(options.values()), repairs)
    affordable = price <= goal["price_upper"]
    # Every attribute, every wanted option and the price count equally.
    whole = len(attributes) + len(wanted) + 1
    reward = total(num_attributes + num_options + affordable, whole, rating.r_type)
    parts: dict[str, Any] = {
        "reward": reward,
        "r_type": rating.r_type,
        "r_att": num_attributes / len(attributes) if attributes else 1.0,
        "w_att": len(attributes) / whole,
        "query_match": rating.query_match,
        "category_match": rating.category_match,
        "title_score": rating.title_score,
    }
    if wanted:
        parts |= {"r_option": num_options / len(wanted), "w_option": len(wanted) / whole}
    return parts | {
        "r_price": affordable,
        "w_price": 1 / whole,
        "num_attr_matches": num_attributes,
        "num_option_matches": num_options,
        "success": reward == 1,
    }


def total(num_met: int, whole: int, r_type: float) -> float:
    """Return the reward: the share of wishes met, the price included, times the factor for the kind."""
    return num_met / whole * r_type


def wanted_options(goal: Mapping[str, Any]) -> tuple[GoalOption, ...]:
    """Return the wanted options of a goal: (name, value) pairs, or bare values."""
    wanted = goal["goal_options"]
    return tuple(wanted.items() if isinstance(wanted, Mapping) else wanted)


def rate_kind(goal: Mapping[str, Any], product: Mapping[str, Any], noun_fn: NounFn, *, symmetric: bool) -> KindRating:
    """Return the rating of a product's kind against a goal's.

    Args:
        goal: See `score_purchase`.
        product: See `score_purchase`.
        noun_fn: See `score_purchase`.
        symmetric: Count every noun of the wanted title once; the original counts repetitions, so that even the same
            title can fall short of 1.
    """
    query_match = product["query"] == goal["query"]
    category_match = len(_categories(product) & _categories(goal)) >= 2
    nouns = noun_fn(goal["name"])
    bought = set(noun_fn(product.get("name", product.get("Title", ""))))
    num_nouns = len(set(nouns)) if symmetric else len(nouns)
    # The original's constants: 0.2 stands for a title without nouns, which neither proves nor excludes the kind.
    title_score = len(bought & set(nouns)) / num_nouns if nouns else 0.2
    # A title with nothing in common outweighs query and category.
    if title_score < 0.1:
        r_type = 0.1 if title_score else 0.0
    else:
        r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    return KindRating(r_type, query_match, category_match, title_score)


def _categories(fields: Mapping[str, Any]) -> set[str]:
    return {part.strip() for part in fields["product_category"].split("›")}


def count_attributes(wanted: Sequence[str], product: Mapping[str, Any]) -> int:
    """Return the number of wanted attributes that a product has: closely, or literally in a text."""
    bullets = product.get("BulletPoints", product.get("small_description")) or ""
    # The fuzzy match applies to short attributes only; a long text would match almost any of them, so it must contain
    # the wish literally.
    texts = (
        product.get("Title", product.get("name", "")).lower(),
        (bullets if isinstance(bullets, str) else " ".join(bullets)).lower(),
        (product.get("Description", product.get("full_description")) or "").lower(),
    )
    own = product.get("Attributes", ())
    return sum(
        any(close(attribute, wish) for attribute in own) or any(wish in text for text in texts) for wish in wanted
    )


def count_options(
    wanted: Sequence[GoalOption], options: Mapping[str, str], offered: Sequence[str], repairs: Repairs
) -> int:
    """Return the number of wanted options that are met; one chosen value may meet several."""
    return sum(any(meets(wish, name, value, offered, repairs) for name, value in options.items()) for wish in wanted)


def meets(wish: GoalOption, name: str, value: str, offered: Sequence[str], repairs: Repairs) -> bool:
    """Return whether the value chosen in one group meets a wish.

    Args:
        wish: A (name, value) pair, or a bare value.
        name: The name of the group.
        value: The value chosen in it.
        offered: All values that the product comes in, in any group.
        repairs: With `symmetric_options`, a pair is met only in the group of its name, and both sides are normalised
            equally. With `exact_options`, only the same value counts, or for a bare value, which people may have
            shortened, the best fit.
    """
    if repairs.symmetric_options and not isinstance(wish, str) and name != wish[0]:
        return False
    sought = wish if isinstance(wish, str) else wish[1]
    if repairs.exact_options:
        return fits_best(value, sought, offered) if isinstance(wish, str) else same_value(value, sought)
    if repairs.symmetric_options:
        # Values of signs only, such as "+", have no tokens and so are not even close to themselves.
        return value == sought or close(normalize_color(value), normalize_color(sought))
    return close(normalize_color(value), normalize_color(wish))
