"""Order: one order of nodes for all strategies, for ties and dead ends, and which nodes count as one."""

from collections.abc import Callable, Hashable, Iterable
from typing import Literal

from tsr_gym.tree import Tree

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


def is_dead(tree: Tree, node: int) -> bool:
    """Return whether an episode has not ended at a node although it is proven lost."""
    return not tree.nodes[node].is_open and not tree.nodes[node].done
