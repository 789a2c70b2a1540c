"""Starts: the states in the middle of episodes at which groups of a run begin.

A class of starts keeps start states in a bank, learns from how the groups went that began there, and draws the next
start.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tsr_gym.agents.episodes.moments import Moment, MomentBank, harvest_moments
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose, no_such, parse_call
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
        ended = [trajectory for trajectory in group.trajectories if trajectory.finished]
        counted = [trajectory for trajectory in ended if trajectory.selected_by == "naive"] or ended
        return cls(moment, len(counted), sum(trajectory.success for trajectory in counted))


@runtime_checkable
class Starts(Protocol):
    """Where groups begin; a class of yours with these methods is chosen by ``package.module:Name``.

    Attributes:
        bank: The moments to draw from.
    """

    bank: MomentBank

    def keep(self, trees: Sequence[Tree], begun: Sequence[Begun]) -> None:
        """Learn from how groups went that began at moments, and keep the moments of an update's trees."""

    def draw(self, rng: np.random.Generator) -> Moment:
        """Return the moment at which a group is to begin, from a bank that is not empty."""

    def numbers(self) -> dict[str, Any]:
        """Return everything that is remembered in addition to the bank, as JSON's own types."""

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Restore what `numbers` returned; the bank is restored already."""


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
        """Return an empty dictionary, because the bank is all."""
        return {}

    def recall(self, numbers: Mapping[str, Any]) -> None:
        """Do nothing, because the bank is all."""


# Classes by the words that configurations have for them.
NAMES = {"states": f"{__name__}:States"}


def choose_starts(text: str) -> Starts:
    """Return the starts that a text such as ``"package.module:Name(number=3)"`` names, with an empty bank.

    Args:
        text: One of `NAMES`, or ``package.module:Name``, with its numbers.

    Raises:
        ConfigError: There are no such starts, or they cannot have these numbers.
    """
    call = parse_call(text, what="kind of moments")
    if ":" not in call.name and call.name not in NAMES:
        raise no_such("kind of moments", call.name, list(NAMES))
    written = str(call._replace(name=NAMES.get(call.name, call.name)))
    make: Callable[[], Any] = choose(written, home=__name__, what="kind of moments", takes=0, trial=lambda made: made())
    starts = make()
    if not isinstance(starts, Starts):
        raise ConfigError(
            f"{text} makes a {type(starts).__name__}: wanted a class with the methods of {__name__}:Starts"
        )
    return starts
