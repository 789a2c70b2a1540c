"""Harvest: how trajectories are taken from a strategy's trees, as the strategy itself says."""

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
    """What a strategy says of its trees.

    Attributes:
        kind: What is taken from them where a configuration does not say.
        by: What the strategy goes by where it chooses: the score, or the reward itself.
        branches: Returns the leaves of each tree that has grown below the root, from the tree and the strategy's
            numbers; None for a tree below each of the root's children.
    """

    kind: Harvest = "selected"
    by: Quantity = "score"
    branches: Callable[..., list[list[int]]] | None = None


def harvested(
    kind: Harvest = "selected", *, by: Quantity = "score", branches: Callable[..., list[list[int]]] | None = None
) -> Callable[[StrategyT], StrategyT]:
    """Return a decorator that lets a strategy say how its trees are harvested, see `Harvesting`.

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
    """Return what a strategy says of its trees; that its chosen paths are taken, where it says nothing."""
    found: Harvesting = vars(strategy.func).get("harvesting", Harvesting())
    return found


def leaves_by_tree(strategy: "partial[Any]", tree: Tree) -> list[list[int]]:
    """Return the ends of episodes of a tree by the branch that they belong to."""
    branches = harvesting_of(strategy).branches
    if branches is None:
        return [list(tree.at(child).leaves()) for child in tree.children(tree.root)]
    numbers = {name: one.default for name, one in inspect.signature(strategy).parameters.items()}
    wanted = [name for name in inspect.signature(branches).parameters if name in numbers]
    return branches(tree, **{name: numbers[name] for name in wanted if name != "tree"})
