"""Merging: which nodes of a tree stand in one state, for strategies that expand every state once."""

from collections.abc import Hashable, Iterable
from typing import Literal

from tsr_gym.tree import Tree

# Whether the turns and actions that are left belong to the state; None merges nothing.
Merge = Literal["state", "turns"] | None


def identity(tree: Tree, node: int, merge: Merge) -> Hashable:
    """Return what a node has in common with those that it may be merged with; one that may not is only itself.

    Where an episode has ended, or is lost, there is nothing to expand and so nothing to merge.

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
