"""Pivots: starts in the middle of failed episodes, where playing again is likely to recover."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.logistic import Logistic, fit_logistic
from tsr_gym.agents.episodes.moments import Moment, MomentBank, moments_at
from tsr_gym.agents.episodes.starts.start import Begun
from tsr_gym.tree import Tree

# Branches that the regression is fitted on (DEEP-GRPO).
MEMORY = 10_000


class Pivots:
    """States of the last failed episodes, drawn by ``P(success | depth) depth^power`` (DEEP-GRPO, arXiv 2602.14169).

    The depth of a state is the share of its episode's turns that were taken before it. P is a logistic regression over
    the last branches: the episodes of all groups that began at a pivot, which sample it densely and are compared among
    themselves. States from which the task is proven lost, and those after them, are no pivots.

    Args:
        power: How much later states are preferred, 0.1 in the paper.
    """

    def __init__(self, *, power: float = 0.1) -> None:
        if not power >= 0:
            raise ValueError(f"wanted power >= 0, got {power}")
        self.power = power
        self.bank = MomentBank()
        self._depth: dict[str, float] = {}
        self._branches: deque[tuple[float, bool]] = deque(maxlen=MEMORY)

    @property
    def fit(self) -> Logistic:
        """The regression of success on depth."""
        return fit_logistic(self._branches)

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Remember the branches, and keep the pivots of an update's failed episodes in place of older ones."""
        for moment, tries, successes in begun:
            depth = self._depth[moment.key]
            self._branches.extend((depth, number < successes) for number in range(tries))
        found = [(tree, depths_of_failures(tree)) for tree in trees]
        if not any(depths for _, depths in found):
            return
        self.bank, self._depth = MomentBank(), {}
        for tree, depths in found:
            moments = moments_at(tree, depths)
            self.bank.add(moments.values())
            self._depth.update({moment.key: depths[node] for node, moment in moments.items()})

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return a pivot by its weight."""
        among = list(self.bank)
        depths = np.array([self._depth[moment.key] for moment in among])
        weights = self.fit(depths) * depths**self.power
        return among[rng.choice(len(among), p=weights / weights.sum())]

    def numbers(self) -> dict[str, Any]:
        """Return the depths of the pivots, and the branches."""
        depth = {moment.key: self._depth[moment.key] for moment in self.bank}
        return {"depth": depth, "branches": [[of, int(success)] for of, success in self._branches]}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Remember them."""
        self._depth = {moment.key: float(numbers["depth"][moment.key]) for moment in self.bank}
        self._branches = deque([(float(of), bool(success)) for of, success in numbers["branches"]], maxlen=MEMORY)


def depths_of_failures(tree: Tree) -> dict[int, float]:
    """Return the relative depth of every node of a tree, but for the first, on the way to an episode's failure.

    ``turns before the node / turns of the episode``; of several failures through a node, that of the shortest.
    """
    found: dict[int, float] = {}
    for leaf in tree.leaves():
        end = tree.nodes[leaf]
        if not end.is_open and not end.solved:
            _, *between = tree.path(leaf)[:-1]
            for taken, node in enumerate(between, start=1):
                found[node] = max(taken / (len(between) + 1), found.get(node, 0.0))
    return found
