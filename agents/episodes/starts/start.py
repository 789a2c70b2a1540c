"""Start: what every kind of starts can do, and how a group went that began at one."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tsr_gym.agents.episodes.moments import Moment, MomentBank
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.tree import Tree


class Begun(NamedTuple):
    """How a group went that began at a moment.

    Attributes:
        moment: Where it began.
        tries: Its episodes of plain play; all of its episodes where there is no plain play.
        successes: Those of them that solved the task.
    """

    moment: Moment
    tries: int
    successes: int

    @classmethod
    def of(cls, moment: Moment, group: Group) -> "Begun":
        """Return how a group went."""
        ended = [one for one in group.trajectories if one.finished]
        counted = [one for one in ended if one.selected_by == "naive"] or ended
        return cls(moment, len(counted), sum(one.success for one in counted))


@runtime_checkable
class Starts(Protocol):
    """A kind of starts.

    Attributes:
        bank: The moments to draw from.
    """

    bank: MomentBank

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Learn from how groups went that began at moments, and keep the moments of an update's trees."""

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return the moment at which a group is to begin, from a bank that is not empty."""

    def numbers(self) -> dict[str, Any]:
        """Return all that the kind remembers beside its bank, as JSON's own types."""

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Remember what `numbers` returned; the bank is there already."""
