"""Practice: a run that also begins episodes at moments, hard states that its own searches came through."""

from pathlib import Path

import numpy as np

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.moments import Moment, MomentBank, harvest_moments
from tsr_gym.seeds import derive_seed

# Moments that are kept at most; the oldest go first, because they are those of an older policy.
MOST = 512
FILE = "moments.jsonl"


class Practice:
    """The moments of a run: kept from its trees, and drawn for some groups of every update.

    What is drawn derives from the run's seed and the number of the group, so a run that goes on repeats it.

    Args:
        groups: Groups of each update that begin at a moment; 0 keeps nothing.
        seed: Of the run.
    """

    def __init__(self, groups: int, *, seed: int) -> None:
        self.groups = groups
        self.seed = seed
        self.bank = MomentBank()

    def starts(self, first: int, count: int) -> list[Moment | None]:
        """Return where some groups begin, None for the start of an instance; the last of them begin at moments.

        Args:
            first: Number of the first group in the run's sequence.
            count: How many groups.
        """
        found: list[Moment | None] = [None] * count
        for place in range(max(0, count - self.groups), count) if len(self.bank) else ():
            rng = np.random.default_rng(derive_seed(self.seed, "practice", first + place))
            found[place] = self.bank.sample(rng)[0]
        return found

    def keep(self, collected: Collected) -> None:
        """Keep the states of an update's trees from which success is known and not certain."""
        if self.groups:
            for tree in (tree for grown in collected.trees for tree in grown):
                self.bank.add(harvest_moments(tree))
            self.bank.keep_last(MOST)

    def save(self, folder: Path) -> None:
        """Write the moments into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if self.groups:
            self.bank.save(folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            InvalidTree: The file is damaged.
        """
        if self.groups and (folder / FILE).exists():
            self.bank = MomentBank.load(folder / FILE)
