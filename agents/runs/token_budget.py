"""Token budget: which tokens count, where a run ends by them, and how many groups it searches side by side before."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple, Protocol

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.start_states import Moment
from tsr_gym.agents.runs.config import RunConfig


class Tokens(Protocol):
    """What is counted by its tokens, such as a run's progress or what a search has spent."""

    @property
    def sampled_tokens(self) -> int:
        """Tokens that were sampled."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens that they were conditioned on, once per sample."""


class Limit(NamedTuple):
    """Tokens of a run after which no group is begun.

    Attributes:
        tokens: So many, counted from the run's beginning.
        margin: Groups are searched together only where as many times the tokens that they should take are left:
            so a run of varying groups hardly goes beyond a limit of margin 4, and some way beyond one of margin 1.
    """

    tokens: int
    margin: int = 4


def counted(tokens: Tokens, run: RunConfig) -> float:
    """Return what tokens count in a run, each kind at its price.

    >>> from tsr_gym import Budget
    >>> counted(Budget(sampled_tokens=100, prompt_tokens=900), RunConfig(prompt_price=0.1))
    190.0
    """
    return run.sampled_price * tokens.sampled_tokens + run.prompt_price * tokens.prompt_tokens


def total_of(run: RunConfig, targets: Sequence[int] | None) -> int | None:
    """Return the tokens at which a run ends: its own number or that of the run that it matches; None without both.

    Args:
        run: Its settings.
        targets: Tokens of the matched run after each update; None where there is none.
    """
    matched = targets[run.updates - 1] if targets and run.updates else None
    return min((total for total in (run.total_tokens, matched) if total is not None), default=None)


def update_end(run: RunConfig, targets: Sequence[int] | None, update: int) -> int | None:
    """Return the tokens of the run at which an update, the first one is 0, has enough; None where others decide."""
    if run.update_tokens is not None:
        return (update + 1) * run.update_tokens
    return None if targets is None else targets[update]


def groups_at_once(limits: Sequence[Limit], *, spent: float, groups: int, least: int = 1) -> int:
    """Return how many groups may be searched together before the limits.

    What a group takes is expected from the mean of all groups of the run. Fewer than `least` are never searched, which
    then go beyond a limit by less than their own tokens.

    Args:
        limits: At least one.
        spent: Tokens that the run has counted.
        groups: Groups that they were counted for; of none nothing is known.
        least: Fewest groups, one for every process.

    >>> groups_at_once([Limit(5000)], spent=1000, groups=10)
    10
    """
    if not spent:
        return least
    return max(least, min(int((limit.tokens - spent) * groups // (limit.margin * spent)) for limit in limits))


def search_within(
    limits: Sequence[Limit],
    search: Callable[[int, Sequence[Moment | None]], Collected],
    first: int,
    starts: Sequence[Moment | None],
    *,
    count: Callable[[Tokens], float],
    spent: float,
    least: int = 1,
) -> Collected:
    """Search an instance from each start, and begin none but the first ones once one of the limits is reached.

    Args:
        limits: At least one.
        search: Searches some instances, from the number of the first one and their starts.
        first: Number of the first instance, and of those before it in the run.
        starts: Of the instances; at least one.
        count: Says what tokens count.
        spent: Tokens that the run has counted.
        least: Fewest instances at a time, one for every process.
    """
    parts: list[Collected] = []
    while not parts or (starts and spent < min(limit.tokens for limit in limits)):
        together = groups_at_once(limits, spent=spent, groups=first, least=least)
        parts.append(search(first, starts[:together]))
        starts, first = starts[together:], first + len(parts[-1].groups)
        spent += count(parts[-1].spent)
    return reduce(add, parts)
