"""What a purchase is worth: the share of a goal's wishes that it meets, times how right the kind of product is.

`score_purchase` is the original's reward bit for bit under ``rules="original"``, and without its three defects under
``rules="fixed"``; each repair is a switch of its own (`tsr_gym_envs.webshop.repairs`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tsr_gym import ConfigError
from tsr_gym_envs.webshop.catalogue.product import GoalOption
from tsr_gym_envs.webshop.matching import close, fits_best, normalize_color, same_value
from tsr_gym_envs.webshop.repairs import Repairs, repairs_of

# Title to nouns in lower case, repetitions included.
NounFn = Callable[[str], Sequence[str]]


class KindRating(NamedTuple):
    """Whether a product is of the kind that was asked for.

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
        price: What the product costs, in dollars.
        rules: ``"fixed"``, ``"original"``, or single repairs.
        noun_fn: The nouns of a title, such as `tsr_gym_envs.webshop.catalogue.nouns.open_nouns` returns.

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
    kind = rate_kind(goal, product, noun_fn, symmetric=repairs.symmetric_titles)
    num_attributes = count_attributes(attributes, product)
    offered = [value for values in (product.get("options") or {}).values() for value in values]
    num_options = count_options(wanted, options, offered or list(options.values()), repairs)
    affordable = price <= goal["price_upper"]
    whole = len(attributes) + len(wanted) + 1
    reward = total(num_attributes + num_options + affordable, whole, kind.r_type)
    parts: dict[str, Any] = {
        "reward": reward,
        "r_type": kind.r_type,
        "r_att": num_attributes / len(attributes) if attributes else 1.0,
        "w_att": len(attributes) / whole,
        "query_match": kind.query_match,
        "category_match": kind.category_match,
        "title_score": kind.title_score,
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
    """Return the reward for so many of the wishes, the price's among them, met by a product of a kind."""
    return num_met / whole * r_type


def wanted_options(goal: Mapping[str, Any]) -> tuple[GoalOption, ...]:
    """Return what a goal asks for in options: (name, value) pairs, or bare values."""
    wanted = goal["goal_options"]
    return tuple(wanted.items() if isinstance(wanted, Mapping) else wanted)


def rate_kind(goal: Mapping[str, Any], product: Mapping[str, Any], noun_fn: NounFn, *, symmetric: bool) -> KindRating:
    """Return whether a product is of the kind that a goal asks for.

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
    """Return how many attributes a product has: among its own, closely enough, or word for word in one of its texts."""
    bullets = product.get("BulletPoints", product.get("small_description")) or ""
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
    """Return how many of the wanted options are met; one chosen value may meet several."""
    return sum(any(meets(wish, name, value, offered, repairs) for name, value in options.items()) for wish in wanted)


def meets(wish: GoalOption, name: str, value: str, offered: Sequence[str], repairs: Repairs) -> bool:
    """Return whether the value chosen in one group is what a goal asks for.

    Args:
        wish: A (name, value) pair, or a bare value.
        name: The name of the group.
        value: The value chosen in it.
        offered: All values that the product comes in, in any group.
        repairs: With `symmetric_options`, a pair is met only in the group of its name, and both sides are normalised
            alike. With `exact_options`, only the same value will do, or for a bare value, which people may have
            shortened, the one that fits best.
    """
    if repairs.symmetric_options and not isinstance(wish, str) and name != wish[0]:
        return False
    sought = wish if isinstance(wish, str) else wish[1]
    if repairs.exact_options:
        return fits_best(value, sought, offered) if isinstance(wish, str) else same_value(value, sought)
    if repairs.symmetric_options:
        # Signs alone, such as "+", have no tokens and are close to nothing, not even to themselves.
        return value == sought or close(normalize_color(value), normalize_color(sought))
    return close(normalize_color(value), normalize_color(wish))
