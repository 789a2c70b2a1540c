"""ChoosingCollector: of several instances for each group, the one whose outcome is most in doubt is played."""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym.agents.episodes.collect import Collected, Collector, Place, task_seed
from tsr_gym.agents.episodes.logistic import fit_logistic
from tsr_gym.agents.episodes.moments import Moment
from tsr_gym.errors import InvalidTree
from tsr_gym.files import write_atomically
from tsr_gym.tree import Tree

FILE = "choice.json"
# Episodes that the regression is fitted on, the last ones.
MEMORY = 10_000

# The value of states, by the identity of their trees and their nodes.
Values = Callable[[Sequence[tuple[Tree, int]]], Mapping[tuple[int, int], float]]


class ChoosingCollector:
    """Search as a `Collector` does, each group at the most doubtful of several instances.

    Groups that all succeed or all fail teach nothing where episodes are compared within their group. With V the value
    of an instance's first state, P the logistic regression of success on V over the last episodes of the run, and n the
    trajectories of a group, that instance is played for which a mixed outcome is most likely:

        ``1 - P^n - (1 - P)^n``

    No tokens are sampled for the choice. The candidates of group g are the instances number ``among g`` to
    ``among g + among - 1`` of the run's sequence, and the first of equal ones is taken, so every part of a run repeats
    it. Groups that begin at moments are not chosen. To spend samples where a mixed outcome is likely is the idea of
    TRACE (arXiv 2606.11119) and InfoTree (arXiv 2605.05262); the predictor here is the project's own.

    Args:
        collector: Searches the chosen instances; its configuration says among how many.
        values: What a critic thinks of states, such as `CriticValue.values`.
    """

    def __init__(self, collector: Collector, values: Values) -> None:
        self.collector = collector
        self.search = collector.search
        self.values = values
        self._episodes: deque[tuple[float, bool]] = deque(maxlen=MEMORY)
        self._expected: list[tuple[float, float]] = []

    def collect(
        self, first: int, count: int, starts: Sequence[Moment | None] = (), *, plainly: bool = False
    ) -> Collected:
        """Search an instance for each of the groups number `first` to `first + count`, see `Collector.collect`."""
        among = self.collector.config.choose_among
        moments = starts or (None,) * count
        free = [group for group, moment in enumerate(moments, start=first) if moment is None]
        values = self._values(free)
        chosen = dict(zip(free, self._most_doubtful(values), strict=True))
        places = [
            Place(among * group + chosen.get(group, 0), moment) for group, moment in enumerate(moments, start=first)
        ]
        collected = self.collector.collect_at(places, plainly=plainly)
        for group, row in zip(free, values, strict=True):
            brought = collected.groups[group - first].trajectories
            self._episodes.extend((float(row[chosen[group]]), trajectory.success) for trajectory in brought)
        return collected

    def begin(
        self, first: int, count: int, starts: Sequence[Moment | None] = (), *, plainly: bool = False
    ) -> Callable[[], Collected]:
        """Search by the weights as they are now, and return what returns it; see `Collector.begin`."""
        found = self.collect(first, count, starts, plainly=plainly)
        return lambda: found

    def signs(self) -> dict[str, Any]:
        """Return what a line of the log says: the share of mixed groups that was foretold, of all and of the chosen."""
        expected, self._expected = self._expected, []
        if not expected:
            return {}
        every, chosen = zip(*expected, strict=True)
        return {"mixed_foretold": fmean(chosen), "mixed_foretold_of_all": fmean(every)}

    def save(self, folder: Path) -> None:
        """Write the episodes of the regression into a checkpoint's folder.

        Raises:
            OSError: The disk is full or not writable.
        """
        episodes = [[value, int(success)] for value, success in self._episodes]
        write_atomically(folder / FILE, json.dumps(episodes).encode())

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            InvalidTree: The file is damaged.
        """
        try:
            episodes = [(float(value), bool(success)) for value, success in json.loads((folder / FILE).read_bytes())]
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidTree(f"{folder / FILE}: not the episodes of a choice ({error}): damaged") from error
        self._episodes = deque(episodes, maxlen=MEMORY)

    def _values(self, groups: Sequence[int]) -> NDArray[np.float64]:
        """Return the values of the candidates, `[len(groups), among]`."""
        among = self.collector.config.choose_among
        numbers = [among * group + one for group in groups for one in range(among)]
        envs = self.collector.pool.set([task_seed(self.collector.seed, number) for number in numbers])
        trees = [env.tree for env in envs]
        found = self.values([(tree, 0) for tree in trees])
        return np.array([found[id(tree), 0] for tree in trees]).reshape(len(groups), among)

    def _most_doubtful(self, values: NDArray[np.float64]) -> list[int]:
        """Return for each group which candidate most likely brings a mixed one.

        Args:
            values: `[groups, among]`.
        """
        config = self.collector.config
        chance, size = fit_logistic(self._episodes)(values), config.trajectories + config.naive
        mixed = 1 - chance**size - (1 - chance) ** size
        self._expected.extend(zip(mixed.mean(1).tolist(), mixed.max(1).tolist(), strict=True))
        return [int(one) for one in mixed.argmax(1)]
