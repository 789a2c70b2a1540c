"""StartStates: states of a run's own earlier trees, at which some groups of every update begin."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.agents.episodes.collect import Collected
from tsr_gym.agents.episodes.start_states import Begun, Starts, StartState, StartStateBank, choose_starts
from tsr_gym.errors import InvalidTree
from tsr_gym.files import write_atomically
from tsr_gym.keywords import bind
from tsr_gym.seeds import derive_seed

# Maximum number of states; the oldest are dropped first, because an older policy reached them.
MOST = 512
FILE = "start_states.jsonl"
NUMBERS = "start_states.json"


class StartStates:
    """The start states of a run: kept from its trees, and drawn for some groups of every update.

    Draws derive from the run's seed and the number of the group, so a resumed run repeats them.

    Args:
        groups: Groups of each update that begin at such a state; 0 keeps nothing.
        seed: Seed of the run.
        source: Which states to keep, see `choose_starts`.
    """

    def __init__(self, groups: int, *, seed: int, source: str = "states") -> None:
        self.groups = groups
        self.seed = seed
        self.source: Starts = bind(source, choose_starts).bound()
        self._begun: dict[int, StartState] = {}

    @property
    def bank(self) -> StartStateBank:
        """The states to draw from."""
        return self.source.bank

    def choose(self, first: int, count: int) -> list[StartState | None]:
        """Return the start state of each of some groups, None for the start of an instance.

        Of every `count` groups in a row, `groups` begin at a state. They are spread evenly, because a limit of tokens
        cuts off the last groups of an update, and their share must not depend on that.

        Args:
            first: Number of the first group in the run's sequence.
            count: Number of groups.
        """
        starts: list[StartState | None] = [None] * count
        for place, number in enumerate(range(first, first + count)):
            # The number of starts among the first n groups is n * groups / count, rounded down; this group has one if
            # the number rises with it.
            if len(self.bank) and (number + 1) * self.groups // count > number * self.groups // count:
                rng = np.random.default_rng(derive_seed(self.seed, "practice", number))
                starts[place] = self._begun[number] = self.source.draw(rng)
        return starts

    def keep(self, collected: Collected, first: int = 0) -> None:
        """Keep states of an update's trees, and update those at which its groups began.

        Args:
            collected: Groups and trees of the update.
            first: Number of its first group.
        """
        if not self.groups:
            return
        groups = enumerate(collected.groups, start=first)
        begun = [Begun.of(self._begun[number], group) for number, group in groups if number in self._begun]
        self._begun = {}
        self.source.keep([tree for grown in collected.trees for tree in grown], begun)
        self.bank.keep_last(MOST)

    def metrics(self) -> dict[str, Any]:
        """Return the number of states as ``start_states``, and the numbers of their source as ``start_states_*``."""
        if not self.groups:
            return {}
        numbers = {name: value for name, value in self.source.numbers().items() if isinstance(value, int | float)}
        return {"start_states": len(self.bank), **{f"start_states_{name}": value for name, value in numbers.items()}}

    def save(self, folder: Path) -> None:
        """Write the states into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        if self.groups:
            self.bank.save(folder / FILE)
            write_atomically(folder / NUMBERS, json.dumps(self.source.numbers()).encode())

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            InvalidTree: A file is damaged.
        """
        if not (self.groups and (folder / FILE).exists()):
            return
        self.source.bank = StartStateBank.load(folder / FILE)
        try:
            self.source.recall(json.loads((folder / NUMBERS).read_bytes()) if (folder / NUMBERS).exists() else {})
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidTree(f"{folder / NUMBERS}: not the numbers of start states ({error}): damaged") from error
