"""Practice: a run that also begins episodes at moments, states of its own earlier trees."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.start_states import Begun, Moment, MomentBank, choose_starts
from tsr_gym.errors import InvalidTree
from tsr_gym.files import write_atomically
from tsr_gym.seeds import derive_seed

# Moments that are kept at most; the oldest go first, because they are those of an older policy.
MOST = 512
FILE = "moments.jsonl"
NUMBERS = "moments.json"


class Practice:
    """The moments of a run: kept from its trees, and drawn for some groups of every update.

    What is drawn derives from the run's seed and the number of the group, so a run that goes on repeats it.

    Args:
        groups: Groups of each update that begin at a moment; 0 keeps nothing.
        seed: Of the run.
        kind: Which states are worth a start, see `choose_starts`.
    """

    def __init__(self, groups: int, *, seed: int, kind: str = "states") -> None:
        self.groups = groups
        self.seed = seed
        self.kind = choose_starts(kind)
        self._begun: dict[int, Moment] = {}

    @property
    def bank(self) -> MomentBank:
        """The moments to draw from."""
        return self.kind.bank

    def starts(self, first: int, count: int) -> list[Moment | None]:
        """Return where some groups begin, None for the start of an instance; as many as wanted begin at moments.

        These are spread evenly over the groups of a run, so that budgets, which cut an update's last groups off, leave
        their share as it is.

        Args:
            first: Number of the first group in the run's sequence.
            count: How many groups; of as many in a row, whichever they are, `groups` begin at moments.
        """
        found: list[Moment | None] = [None] * count
        for place, number in enumerate(range(first, first + count)):
            if len(self.bank) and (number + 1) * self.groups // count > number * self.groups // count:
                rng = np.random.default_rng(derive_seed(self.seed, "practice", number))
                found[place] = self._begun[number] = self.kind.draw(rng)
        return found

    def keep(self, collected: Collected, first: int = 0) -> None:
        """Learn from how an update's groups went, and keep what its trees have.

        Args:
            collected: What the update's searches brought.
            first: Number of its first group.
        """
        if not self.groups:
            return
        groups = enumerate(collected.groups, start=first)
        begun = [Begun.of(self._begun[number], group) for number, group in groups if number in self._begun]
        self._begun = {}
        self.kind.keep([tree for grown in collected.trees for tree in grown], begun)
        self.bank.keep_last(MOST)

    def signs(self) -> dict[str, Any]:
        """Return what a line of the log says of practice: the moments that are known, and numbers of their kind."""
        if not self.groups:
            return {}
        numbers = {name: value for name, value in self.kind.numbers().items() if isinstance(value, int | float)}
        return {"moments": len(self.bank), **{f"moments_{name}": value for name, value in numbers.items()}}

    def save(self, folder: Path) -> None:
        """Write the moments into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if self.groups:
            self.bank.save(folder / FILE)
            write_atomically(folder / NUMBERS, json.dumps(self.kind.numbers()).encode())

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            InvalidTree: A file is damaged.
        """
        if not (self.groups and (folder / FILE).exists()):
            return
        self.kind.bank = MomentBank.load(folder / FILE)
        try:
            self.kind.recall(json.loads((folder / NUMBERS).read_bytes()) if (folder / NUMBERS).exists() else {})
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidTree(f"{folder / NUMBERS}: not what is known of the moments ({error}): damaged") from error
