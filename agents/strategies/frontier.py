"""Frontier: the nodes that wait to be expanded, cheapest first, and those to sample again where none waits."""

from collections.abc import Hashable
from heapq import heappop, heappush

from tsr_gym.agents.strategies.order import Merge, identity
from tsr_gym.tree import Tree


class Frontier:
    """One queue over a whole tree, from which a state that was expanded already is left out.

    With merging, a queue runs dry while a policy could still say something else: most of its samples lead to states
    that were expanded already. Where no node waits, those that were expanded are therefore sampled again: those that
    were least often, of these the cheapest first. Without merging a queue is dry only where all episodes have ended.

    Args:
        tree: What has grown.
        merge: Which nodes count as one.
    """

    def __init__(self, tree: Tree, merge: Merge) -> None:
        self._tree = tree
        self._merge: Merge = merge
        self._waiting: list[tuple[float, int, int]] = []
        self._again: list[tuple[int, float, int, int]] = []
        self._entered: dict[Hashable, float] = {}
        self._weights: dict[int, float] = {}

    def add(self, node: int, cost: float, weight: float = 0.0) -> None:
        """Let an open node wait; of others there is nothing to expand.

        Args:
            node: The node.
            cost: The cheapest goes first; ties are broken by the tree's seed.
            weight: A node is left out where its state was expanded with as large a weight.
        """
        if self._tree.nodes[node].is_open:
            # Sums of the same numbers in another order differ in the last digits: that is a tie.
            heappush(self._waiting, (round(cost, 9), self._tree.tie(node), node))
            self._weights[node] = weight

    def take(self, number: int) -> list[int]:
        """Return at most so many nodes to expand, the next ones; none only where there never will be any."""
        fresh: list[tuple[int, float, int, int]] = []
        while self._waiting and len(fresh) < number:
            cost, tie, node = heappop(self._waiting)
            state, weight = identity(self._tree, node, self._merge), self._weights.pop(node)
            if state not in self._entered or self._entered[state] < weight:
                self._entered[state] = weight
                fresh.append((1, cost, tie, node))
        if not fresh and self._merge is not None:
            oldest = [heappop(self._again) for _ in range(min(number, len(self._again)))]
            fresh = [(times + 1, cost, tie, node) for times, cost, tie, node in oldest]
        for entry in fresh:
            heappush(self._again, entry)
        return [node for *_, node in fresh]
