"""Token budget: how many groups a run of limited tokens searches side by side, so that it ends close to its limits."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.moments import Moment


class Limit(NamedTuple):
    """Tokens of a run after which no group is begun.

    Attributes:
        tokens: So many, counted from the run's beginning.
        margin: Groups are searched together only where as many times the tokens that they should take are left:
            so a run of varying groups hardly goes beyond a limit of margin 4, and some way beyond one of margin 1.
    """

    tokens: int
    margin: int = 4


def groups_at_once(limits: Sequence[Limit], *, sampled: int, groups: int, least: int = 1) -> int:
    """Return how many groups may be searched together before the limits.

    What a group takes is expected from the mean of all groups of the run. Fewer than `least` are never searched, which
    then go beyond a limit by less than their own tokens.

    Args:
        limits: At least one.
        sampled: Tokens that were sampled.
        groups: Groups that they were sampled for; of none nothing is known.
        least: Fewest groups, one for every process.

    >>> groups_at_once([Limit(5000)], sampled=1000, groups=10)
    10
    """
    if not sampled:
        return least
    return max(least, min((limit.tokens - sampled) * groups // (limit.margin * sampled) for limit in limits))


def search_within(
    limits: Sequence[Limit],
    search: Callable[[int, Sequence[Moment | None]], Collected],
    first: int,
    starts: Sequence[Moment | None],
    *,
    sampled: int,
    least: int = 1,
) -> Collected:
    """Search an instance from each start, and begin none but the first ones once one of the limits is reached.

    Args:
        limits: At least one.
        search: Searches some instances, from the number of the first one and their starts.
        first: Number of the first instance, and of those before it in the run.
        starts: Of the instances; at least one.
        sampled: Tokens that the run has sampled.
        least: Fewest instances at a time, one for every process.
    """
    parts: list[Collected] = []
    while not parts or (starts and sampled < min(limit.tokens for limit in limits)):
        count = groups_at_once(limits, sampled=sampled, groups=first, least=least)
        parts.append(search(first, starts[:count]))
        starts, first = starts[count:], first + len(parts[-1].groups)
        sampled += parts[-1].spent.sampled_tokens
    return reduce(add, parts)
