"""Harvest: how trajectories are taken from the trees of a strategy, as a decorator on the strategy defines."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from tsr_gym.tree import Quantity, Tree

# The paths that the strategy chose, every episode of one tree, the same by the tree that they belong to, or the path to
# every leaf.
Harvest = Literal["selected", "episodes", "branches", "leaves"]
StrategyT = TypeVar("StrategyT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Harvesting:
    """Record of how trajectories are taken from the trees of a strategy.

    Attributes:
        kind: Paths that are taken where the configuration leaves it to the strategy.
        by: The quantity by which the strategy selects: the score, or the reward itself.
        branches: Returns the leaves of each tree that has grown below the root, from the tree and the strategy's
            numbers; None for a tree below each of the root's children.
    """

    kind: Harvest = "selected"
    by: Quantity = "score"
    branches: Callable[..., list[list[int]]] | None = None


def harvested(
    kind: Harvest = "selected", *, by: Quantity = "score", branches: Callable[..., list[list[int]]] | None = None
) -> Callable[[StrategyT], StrategyT]:
    """Return a decorator that records how a strategy's trees are harvested, see `Harvesting`.

    >>> @harvested("episodes")
    ... def twice(tree):
    ...     yield [Expand(tree.root, 2)]
    >>> harvesting_of(partial(twice)).kind
    'episodes'
    """

    def mark(strategy: StrategyT) -> StrategyT:
        vars(strategy)["harvesting"] = Harvesting(kind, by, branches)
        return strategy

    return mark


def harvesting_of(strategy: "partial[Any]") -> Harvesting:
    """Return the record of a strategy; the default takes its selected paths."""
    harvesting: Harvesting = vars(strategy.func).get("harvesting", Harvesting())
    return harvesting


def leaves_by_tree(strategy: "partial[Any]", tree: Tree) -> list[list[int]]:
    """Return the leaves of a tree, one list per branch below the root."""
    branches = harvesting_of(strategy).branches
    if branches is None:
        return [list(tree.at(child).leaves()) for child in tree.children(tree.root)]
    numbers = {name: parameter.default for name, parameter in inspect.signature(strategy).parameters.items()}
    names = [name for name in inspect.signature(branches).parameters if name in numbers and name != "tree"]
    return branches(tree, **{name: numbers[name] for name in names})
