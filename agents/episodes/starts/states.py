"""States: starts from which success was seen and is not certain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.moments import Moment, MomentBank, harvest_moments
from tsr_gym.agents.episodes.starts.start import Begun
from tsr_gym.tree import Tree


class States:
    """States from which some paths of a tree succeeded and others failed, drawn by the variance of their outcome."""

    def __init__(self) -> None:
        self.bank = MomentBank()

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Keep the moments of some trees; those of a group that began at a moment count into it by themselves."""
        for tree in trees:
            self.bank.add(harvest_moments(tree))

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return a moment by ``p (1 - p)``, see `MomentBank.sample`."""
        return self.bank.sample(rng)[0]

    def numbers(self) -> dict[str, Any]:
        """Return nothing: the bank is all."""
        return {}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Remember nothing."""
