"""Settings of a search that are held beside each other: every width with every budget."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from tsr_gym.agents.strategies import STRATEGIES, choose_strategy
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import Call, fold, parse_call
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
    search: str, *, widths: Sequence[int] | None, budgets: Sequence[int], depth: int | None = None
) -> tuple[str, list[SearchSetting]]:
    """Return what the budgets are numbers of, and the settings.

    Args:
        search: A strategy, see `SearchConfig.search`; numbers that it is given are not varied.
        widths: Of a strategy that has a width; None for 1 and 2 where it has one.
        budgets: Its branching, or whatever it has of `BUDGETS`.
        depth: Short for a number of that name in `search`.

    Raises:
        ConfigError: There is no such strategy, it has nothing to vary, or no such number.
    """
    call = parse_call(fold(search, {"depth": depth}, home=STRATEGIES, what="strategy"))
    # Numbers that are varied need not be there yet.
    found = inspect.signature(choose_strategy(str(call), **dict.fromkeys(BUDGETS, 1))).parameters
    free = [name for name in found if name not in call.keywords]
    budget_name = next((name for name in BUDGETS if name in free), None)
    if budget_name is None:
        raise ConfigError(f"the strategy {search!r} has no number to vary: wanted one of {list(BUDGETS)}")
    if widths is not None and "width" not in free:
        raise ConfigError(f"the strategy {search!r} has no width to vary, got widths {list(widths)}: leave them out")
    settings = []
    for width in (widths or (1, 2)) if "width" in free else (None,):
        for budget in budgets:
            numbers = ({} if width is None else {"width": width}) | {budget_name: budget} | call.keywords
            label = str(Call(call.name, numbers))
            settings.append(SearchSetting(label, width, budget, choose_strategy(label)))
    return budget_name, settings
