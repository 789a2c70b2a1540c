"""The original's defects, one switch each: ``rules="original"`` keeps all, ``rules="fixed"`` repairs all."""

from collections.abc import Collection
from dataclasses import dataclass, fields

from tsr_gym import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """The repaired defects of the original WebShop; all of them by default.

    Attributes:
        symmetric_options: Wanted and chosen options are normalised equally, and a wanted (name, value) pair is met only
            by a value chosen in the group of that name. The original collapses colours on one side only, which makes
            6.6 % of its synthetic goals unreachable.
        exact_options: An option is met by the same value only. The original's fuzzy match takes 5 for 5.5, large for
            x-large and any blue for any other blue.
        symmetric_titles: The title score compares two sets of nouns. The original divides by a list with repetitions,
            so that even the identical title can fall short.
        page_state: "< Prev" and the marks of chosen options go by the state of the page. The original looks for words
            in its address, where a query can place them.
        stored_prices: The price of a product with a price range, and the limit in an instruction, belong to the
            catalogue. The original draws both anew in every process.
        plain_queries: Queries that begin with <r>, <a>, <c> or <q> are words like others. In the original they are
            commands that list random products, whole categories, or fail.
        bounded_pages: Only pages with a next page of results have "Next >". The original always shows it.
        every_goal_drawn: A random draw returns the goal whose interval it hits. The original returns the next one, so
            that the first is never drawn.
        product_splits: The splits train, valid and test never share a product. The original splits goals by their
            number, and goals of one product fall on both sides.
        ends_with_purchase: The episode ends with the purchase. In the original one can search and buy on.
    """

    symmetric_options: bool = True
    exact_options: bool = True
    symmetric_titles: bool = True
    page_state: bool = True
    stored_prices: bool = True
    plain_queries: bool = True
    bounded_pages: bool = True
    every_goal_drawn: bool = True
    product_splits: bool = True
    ends_with_purchase: bool = True


NAMES = tuple(field.name for field in fields(Repairs))
RULES = {"fixed": Repairs(), "original": Repairs(**dict.fromkeys(NAMES, False))}


def repairs_of(rules: str | Repairs, names: Collection[str] | None = None) -> Repairs:
    """Return the repairs that the settings describe.

    Args:
        rules: ``"fixed"``, ``"original"``, or repairs, which are returned as they are.
        names: Exactly these repairs instead of those of `rules`; None keeps them.

    Raises:
        ConfigError: A name is unknown.

    >>> repairs_of("original", ["plain_queries"]).plain_queries
    True
    """
    if isinstance(rules, str) and rules not in RULES:
        raise ConfigError(f"wanted rules of {sorted(RULES)}, got {rules!r}")
    if names is None:
        return RULES[rules] if isinstance(rules, str) else rules
    if unknown := sorted(set(names) - set(NAMES)):
        raise ConfigError(f"unknown repairs {unknown}; known: {list(NAMES)}")
    return Repairs(**{name: name in names for name in NAMES})
