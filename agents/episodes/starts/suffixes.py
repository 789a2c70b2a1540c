"""Suffixes: starts on the way to a success, from near its end backwards as fast as the policy learns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.moments import Moment, MomentBank, moments_at
from tsr_gym.agents.episodes.starts.start import Begun
from tsr_gym.tree import Tree


class Suffixes:
    """States of successes, searched ones too, so many turns before the end that the policy sometimes succeeds.

    A controller holds that number of turns. After an update whose groups began there and succeeded in more than a share
    `level` of their tries it is one turn more, otherwise one less, from 1 to the longest way that is known (a reverse
    curriculum, arXiv 1707.05300).

    Args:
        level: Share of successes above which the start moves backwards.

    Attributes:
        turns: How many turns before a success groups begin.
    """

    def __init__(self, *, level: float = 0.5) -> None:
        if not 0 <= level < 1:
            raise ValueError(f"wanted 0 <= level < 1, got {level}")
        self.level = level
        self.bank = MomentBank()
        self.turns = 1
        self._left: dict[str, int] = {}

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Move the start by how groups went, and keep the states on the way to the successes of some trees."""
        tries, successes = sum(one.tries for one in begun), sum(one.successes for one in begun)
        if tries:
            self.turns += 1 if successes > self.level * tries else -1
        self._left = {moment.key: self._left[moment.key] for moment in self.bank}
        for tree in trees:
            left = turns_left(tree)
            found = moments_at(tree, left)
            self.bank.add(found.values())
            for node, moment in found.items():
                self._left[moment.key] = min(left[node], self._left.get(moment.key, left[node]))
        self.turns = min(max(1, self.turns), max(self._left.values(), default=1))

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return one of the moments whose number of turns to a success is nearest to the controller's."""
        among = list(self.bank)
        off = np.array([abs(self._left[moment.key] - self.turns) for moment in among])
        return among[int(rng.choice(np.flatnonzero(off == off.min())))]

    def numbers(self) -> dict[str, Any]:
        """Return the controller's number, and the turns to a success of every moment."""
        return {"turns": self.turns, "left": {moment.key: self._left[moment.key] for moment in self.bank}}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Remember them."""
        self.turns = int(numbers["turns"])
        self._left = {moment.key: int(numbers["left"][moment.key]) for moment in self.bank}


def turns_left(tree: Tree) -> dict[int, int]:
    """Return the fewest turns to a success that a tree shows, of each node on the way to one but for the first.

    The node of the most turns comes first.
    """
    found: dict[int, int] = {}
    for leaf in tree.leaves():
        if tree.nodes[leaf].solved:
            for left, node in enumerate(reversed(tree.path(leaf)[1:])):
                if left:
                    found[node] = min(left, found.get(node, left))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
