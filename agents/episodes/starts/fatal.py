"""Fatal: starts before a move that lost the task for certain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.moments import Moment, MomentBank, Outcomes, moments_at
from tsr_gym.agents.episodes.starts.start import Begun
from tsr_gym.tree import Tree


class Fatal:
    """States that were not lost, from which a move was tried that lost the task, drawn by the variance of the outcome.

    A move is fatal that ended the task without success, or after which the task is proven lost (`DeadEnds`, by the
    setting dead_ends), so a state is kept only if losing it was the move's doing.
    """

    def __init__(self) -> None:
        self.bank = MomentBank()

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Keep the states before the fatal moves of some trees, and what became of groups that began at such."""
        for moment, tries, successes in begun:
            if moment.key in self.bank:
                self.bank.update(moment, Outcomes(tries, tries, successes))
        for tree in trees:
            self.bank.add(moments_at(tree, before_fatal_moves(tree)).values())

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return a moment by ``p (1 - p)``, see `MomentBank.sample`."""
        return self.bank.sample(rng)[0]

    def numbers(self) -> dict[str, Any]:
        """Return nothing: the bank is all."""
        return {}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Remember nothing."""


def before_fatal_moves(tree: Tree) -> list[int]:
    """Return the nodes of a tree, but for the first, that are not lost and have a child that is."""
    found = []
    for index in sorted(tree.below()):
        children = [tree.nodes[child] for child in tree.children(index)]
        lost = any(child.info.get("dead_end") or (child.terminated and not child.solved) for child in children)
        if lost and index != tree.root and tree.nodes[index].is_open:
            found.append(index)
    return found
