"""Token budget: how many groups a run of limited tokens searches side by side, so that it ends close to its limit."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.moments import Moment

# Groups are searched together only where as many times the tokens that they are expected to take are left.
MARGIN = 4


def groups_at_once(left: int, *, sampled: int, groups: int, least: int = 1) -> int:
    """Return how many groups may be searched together while some tokens are left.

    What a group takes is expected from the mean of all groups of the run. Together they may take `MARGIN` times as much
    before they go beyond the limit; fewer than `least` are never searched, which then go beyond it by less than their
    own tokens.

    Args:
        left: Tokens that are left.
        sampled: Tokens that were sampled.
        groups: Groups that they were sampled for; of none nothing is known.
        least: Fewest groups, one for every process.

    >>> groups_at_once(4000, sampled=1000, groups=10)
    10
    """
    return max(least, left * groups // (MARGIN * sampled) if sampled else 0)


def search_within(
    total: int,
    search: Callable[[int, Sequence[Moment | None]], Collected],
    first: int,
    starts: Sequence[Moment | None],
    *,
    sampled: int,
    least: int = 1,
) -> Collected:
    """Search an instance from each start, and begin none once the run's tokens are used up.

    Args:
        total: Tokens that the run may sample.
        search: Searches some instances, from the number of the first one and their starts.
        first: Number of the first instance, and of those before it in the run.
        starts: Of the instances.
        sampled: Tokens that the run has sampled, fewer than `total`.
        least: Fewest instances at a time, one for every process.
    """
    parts: list[Collected] = []
    while starts and sampled < total:
        count = groups_at_once(total - sampled, sampled=sampled, groups=first, least=least)
        parts.append(search(first, starts[:count]))
        starts, first = starts[count:], first + len(parts[-1].groups)
        sampled += parts[-1].spent.sampled_tokens
    return reduce(add, parts)
