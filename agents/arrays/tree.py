"""Trees of many searches at once, as arrays, and what a batch of environments must be able to do to grow them.

One search here is as many searches as there are tasks, in lock-step, without an object per node. Everything random
derives from a task's seed and an address in its tree, so a task's tree does not depend on the other tasks.
Importing this module without numba raises MissingExtra.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tsr_gym.optional import require

require("numba", "agents")

import numba  # noqa: E402

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# Numbers of purposes for seeds that derive from a node's seed; smaller numbers are those of its children.
POLICY, DICE, TIE = 1 << 32, 2 << 32, 3 << 32
# The increment and the factors of splitmix64.
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE, _SHIFTS = np.uint64(1), (np.uint64(30), np.uint64(27), np.uint64(31))


class ArrayEnv(Protocol):
    """A batch of environments that a search can move about; `gym.make_vec` of the grid worlds returns such."""

    num_envs: int

    @property
    def draws_noise(self) -> bool:
        """Whether actions have outcomes that are left to chance."""

    @property
    def over(self) -> Flags:
        """Mask of the episodes that have ended, `[N]`."""

    def take(self, rows: Longs) -> Self:
        """Return a batch of copies: its environment j is `rows[j]` of this one."""

    def select(self, rows: Longs, *, source: Any = None, into: Longs | None = None, seeds: Words | None = None) -> None:
        """Make environment `into[j]` a copy of the source's `rows[j]`, with fresh random numbers where seeds are given.

        Without `source` this batch is meant, without `into` all environments in order.
        """

    def advance(self, actions: Longs) -> tuple[Floats, Flags, Flags]:
        """Take an action in every running episode; return rewards, terminated and truncated, `[N]` each."""


class ArrayRequest(NamedTuple):
    """Arguments of a policy in addition to the batch of N environments, which stand where actions are requested.

    Attributes:
        depth: Turns since the roots.
        numbers: `[N]` which candidate of its node each is, counted from 0.
        seeds: `[N]` a seed for each.
        wanted: `[N]` whether the action counts; the others only fill the batch, whose size is fixed.
    """

    depth: int
    numbers: Longs
    seeds: Words
    wanted: Flags


ArrayPolicy = Callable[[Any, ArrayRequest], Longs]
# The batch after a turn and the turn's rewards `[N]` give the scores `[N]`.
ArrayScore = Callable[[Any, Floats], Floats]


class ArrayTree(NamedTuple):
    """The trees of K tasks, in S places each; place 0 is the root.

    Attributes:
        parents: `[K, S]` the place that a node grew from, -1 at the root and where nothing grew.
        actions: `[K, S]` the action that led to it, -1 likewise.
        rewards: `[K, S]` what the action paid.
        scores: `[K, S]` the guide of the search for the action.
        terminated: `[K, S]` whether the task ended there.
        truncated: `[K, S]` whether a limit ended the episode there.
    """

    parents: Longs
    actions: Longs
    rewards: Floats
    scores: Floats
    terminated: Flags
    truncated: Flags

    @classmethod
    def empty(cls, tasks: int, places: int) -> "ArrayTree":
        """Return trees in which nothing has grown."""
        shape = (tasks, places)
        numbers = (np.full(shape, -1), np.full(shape, -1), np.zeros(shape), np.zeros(shape))
        return cls(*numbers, np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))

    @property
    def num_expanded(self) -> int:
        """Number of nodes without the roots."""
        return int((self.actions >= 0).sum())

    def actions_to(self, nodes: Longs) -> Longs:
        """Return the actions on the way from the roots to one node of each task.

        Args:
            nodes: `[K]` places.

        Returns:
            `[K, D]`, -1 after the end of a path; D is the longest path's length.
        """
        tasks, here, steps = np.arange(len(nodes)), nodes, []
        while (here > 0).any():
            steps.append(np.where(here > 0, self.actions[tasks, here], -1))
            here = np.where(here > 0, self.parents[tasks, here], 0)
        path = np.array(steps[::-1], np.int64).reshape(len(steps), len(nodes)).T
        # Short paths stand at the end of their rows; a stable sort brings them to the front.
        return np.take_along_axis(path, np.argsort(path < 0, axis=1, kind="stable"), axis=1)


def root_seeds(seeds: Any, tasks: int) -> Words:
    """Return the seeds of the roots, one for each task.

    Raises:
        ValueError: There are not as many seeds as tasks.
    """
    words = np.asarray(seeds).astype(np.uint64)
    if words.shape != (tasks,):
        raise ValueError(f"wanted one seed for each of {tasks} tasks, got an array of shape {words.shape}")
    return words


def njit(function: FunctionT) -> FunctionT:
    """Return the function compiled to machine code, under its Python type.

    It takes and returns plain arrays, NamedTuples of them, and numbers, and knows no environment.
    """
    return cast(FunctionT, numba.njit(cache=True)(function))


@njit
def derive(seed: Any, number: int) -> Any:
    """Return a seed for a numbered purpose of a seed, by the output function of splitmix64 (Steele et al. 2014)."""
    word = seed + (np.uint64(number) + _ONE) * _GOLDEN
    word = (word ^ word >> _SHIFTS[0]) * _FIRST
    word = (word ^ word >> _SHIFTS[1]) * _SECOND
    return word ^ word >> _SHIFTS[2]
