"""Ranked: one order of nodes for all strategies, so that ties and dead ends are treated alike."""

from collections.abc import Callable, Iterable

from tsr_gym.tree import Tree


def ranked(tree: Tree, nodes: Iterable[int], worth: Callable[[int], float]) -> list[int]:
    """Return nodes, best first.

    What is known to be a dead end comes after all others, whatever it is worth: it is no place for a search to hold.
    Ties are broken as `Tree.best` breaks them, by the tree's seed and the nodes' addresses.

    Args:
        tree: What has grown.
        nodes: What to order.
        worth: How good a node is, larger is better.
    """

    def rank(node: int) -> tuple[bool, float, int]:
        # Sums of the same rewards in another order differ in the last digits: that is a tie.
        return is_dead(tree, node), -round(worth(node), 9), tree.tie(node)

    return sorted(nodes, key=rank)


def is_dead(tree: Tree, node: int) -> bool:
    """Return whether an episode goes on at a node although it is proven lost."""
    return not tree.nodes[node].is_open and not tree.nodes[node].done
