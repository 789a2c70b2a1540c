"""The options of a product: groups such as sizes and colors, with the values that it comes in."""

from collections.abc import Sequence
from itertools import pairwise

from tsr_gym_envs.webshop.generator.draws import Draws
from tsr_gym_envs.webshop.generator.vocabulary import OptionSet

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
    """Return the values of each option group by name; None stands for a group without values.

    Args:
        draws: Where choices come from.
        shares: Running shares of products with 0, 1, 2 and 3 groups.
        sources: Names of groups, most typical first, and where their values come from.
        slots: Numbers that values may contain.
    """
    count = min(draws.weighted(shares), len(sources))
    if count == 0:
        return {draws.pick(sources)[0]: None} if draws.chance(EMPTY) else {}
    first = 0 if draws.chance(0.6) else draws.below(len(sources))
    chosen = [sources[(first + number) % len(sources)] for number in range(count)]
    groups: Groups = {}
    left, combinations = MAX_VALUES, MAX_COMBINATIONS
    for number, (name, values) in enumerate(chosen):
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
    """Return values with codes of the maker, as in "B2-Black"; no two values get the same."""
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
