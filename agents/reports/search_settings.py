"""Settings of a search that are held beside each other: every width with every budget."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from tsr_gym.agents.episodes.collect import pick_strategy
from tsr_gym.agents.runs.config import SearchConfig
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call
from tsr_gym.tree import Strategy

# What strategies call the number that decides what they spend, in the order in which it is looked for.
BUDGETS = ("branching", "n", "simulations", "expansions", "rollouts", "max_rollouts")


@dataclass(frozen=True, slots=True)
class SearchSetting:
    """A strategy with its numbers.

    Attributes:
        label: Both, as a configuration writes them.
        width: Paths that are kept; None where the strategy has no width, or one that is fixed.
        budget: What it may spend.
        strategy: Ready to be searched with.
    """

    label: str
    width: int | None
    budget: int
    strategy: Strategy


def search_settings(
    search: str, *, widths: Sequence[int], budgets: Sequence[int], depth: int
) -> tuple[str, list[SearchSetting]]:
    """Return what the budgets are numbers of, and the settings.

    Args:
        search: A strategy, see `SearchConfig.search`; numbers that it is given are not varied.
        widths: Of a strategy that has a width.
        budgets: Its branching, or whatever it has of `BUDGETS`.
        depth: Of a strategy that needs one.

    Raises:
        ConfigError: There is no such strategy, or it has nothing to vary.
    """
    found = inspect.signature(pick_strategy(SearchConfig(search=search))).parameters
    _, given = parse_call(search, home="tsr_gym.agents.strategies")
    free = [name for name in found if name not in given]
    budget_name = next((name for name in BUDGETS if name in free), None)
    if budget_name is None:
        raise ConfigError(f"the strategy {search!r} has no number to vary: wanted one of {list(BUDGETS)}")
    settings = []
    for width in widths if "width" in free else (None,):
        for budget in budgets:
            numbers = ({} if width is None else {"width": width}) | {budget_name: budget} | given
            written = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
            label = f"{search.partition('(')[0]}({written})"
            strategy = pick_strategy(SearchConfig(search=label, depth=depth))
            settings.append(SearchSetting(label, width, budget, strategy))
    return budget_name, settings
