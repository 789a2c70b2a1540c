"""One order of nodes for all strategies, which nodes count as one, and how trajectories are taken from the trees.

The order decides ties and dead ends. `harvested` is a decorator on a strategy; without it the selected paths are taken.
"""

import inspect
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from tsr_gym.ranges import finite
from tsr_gym.tree import Quantity, Tree

# Whether the turns and actions that are left belong to the state; None merges nothing.
Merge = Literal["state", "turns"] | None


def identity(tree: Tree, node: int, merge: Merge) -> Hashable:
    """Return a key that nodes share if they may be merged; the node itself where it may not be merged.

    A node whose episode has ended or is lost takes no candidates, so there is nothing to merge.

    Raises:
        ValueError: There is no such way of merging.
    """
    if merge not in (None, "state", "turns"):
        raise ValueError(f"wanted merge of None, 'state' or 'turns', got {merge!r}")
    key = tree.key(node, turns=merge == "turns") if merge is not None and tree.nodes[node].is_open else None
    return node if key is None else key


def distinct(tree: Tree, nodes: Iterable[int], merge: Merge) -> list[int]:
    """Return the first of the nodes of every state, in their order."""
    first: dict[Hashable, int] = {}
    for node in nodes:
        first.setdefault(identity(tree, node, merge), node)
    return list(first.values())


def ranked(tree: Tree, nodes: Iterable[int], worth: Callable[[int], float]) -> list[int]:
    """Return nodes, best first.

    Dead ends come after all other nodes, regardless of their worth: a search has no use for them.
    Ties are broken as `Tree.best` breaks them, by the tree's seed and the nodes' addresses.
    """

    def rank(node: int) -> tuple[bool, float, int]:
        # Sums of the same rewards in another order differ in the last digits; rounding makes these a tie.
        return is_dead(tree, node), -round(worth(node), 9), tree.tie(node)

    return sorted(nodes, key=rank)


def best_ends(tree: Tree, nodes: Iterable[int], worth: Callable[[int], float]) -> list[int]:
    """Return the finished episodes among the nodes of a search, best first; without one, its best leaf."""
    leaves = [node for node in nodes if node != tree.root and not tree.children(node)]
    finished = [leaf for leaf in leaves if tree.nodes[leaf].done]
    return ranked(tree, finished, worth) or ranked(tree, leaves, worth)[:1]


def valued(value: Callable[[Tree, int], float], tree: Tree, node: int) -> float:
    """Return the value of a node by a function of a user.

    Raises:
        NotFinite: It is not finite; the message names the function and the node.
    """
    return finite(value(tree, node), f"the value of node {node}", value)


def is_dead(tree: Tree, node: int) -> bool:
    """Return whether an episode has not ended at a node although it is proven lost."""
    return not tree.nodes[node].is_open and not tree.nodes[node].done


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
    harvest: Harvest = "selected", *, by: Quantity = "score", branches: Callable[..., list[list[int]]] | None = None
) -> Callable[[StrategyT], StrategyT]:
    """Return a decorator that records how a strategy's trees are harvested, see `Harvesting`.

    >>> @harvested("episodes")
    ... def twice(tree):
    ...     yield [Expand(tree.root, 2)]
    >>> harvesting_of(partial(twice)).kind
    'episodes'
    """

    def mark(strategy: StrategyT) -> StrategyT:
        vars(strategy)["harvesting"] = Harvesting(harvest, by, branches)
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
