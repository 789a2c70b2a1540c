"""Rows as trainers of others want them: what was sampled, and beside every token its reward and its advantage."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from tsr_gym.agents.bridges.rows import Row, rows_of
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.estimators import Estimator
from tsr_gym.seeds import derive_seed

AnyT = TypeVar("AnyT")


class TrainedRow(NamedTuple):
    """A row and what is learned from it.

    Attributes:
        row: Tokens, mask and log-probabilities.
        rewards: `[T]` of each turn on its last sampled token; 0 elsewhere.
        advantages: `[T]` 0 where nothing was sampled; None without an estimator.
    """

    row: Row
    rewards: list[float]
    advantages: list[float] | None


def trained_rows(groups: Sequence[Group], estimator: Estimator | None) -> list[list[list[TrainedRow]]]:
    """Return the rows of each trajectory of each group; trajectories without tokens are left out.

    Args:
        groups: Trajectories, which have their advantages among themselves.
        estimator: Whose advantages the rows have; None for none.
    """
    if not any(trajectory.num_tokens for group in groups for trajectory in group.trajectories):
        return [[] for _ in groups]
    batch = collate(groups)
    # A batch has a row wherever a trajectory has tokens, in the order of `rows_of`.
    rewards = iter(batch.rewards)
    advantages = iter(()) if estimator is None else iter(estimator(batch))
    found = []
    for group in groups:
        trajectories: list[list[TrainedRow]] = []
        for number, trajectory in enumerate(group.trajectories):
            parts = []
            for row in rows_of(trajectory, task=group.task, number=number):
                length = len(row.input_ids)
                given = None if estimator is None else next(advantages)[:length].tolist()
                parts.append(TrainedRow(row, next(rewards)[:length].tolist(), given))
            trajectories += [parts] if parts else []
        found.append(trajectories)
    return found


def drawn_evenly(found: Sequence[AnyT], size: int, *parts: int | str) -> list[AnyT]:
    """Return `size` of what was found, drawn evenly and in its order, or all of it where there is no more.

    Args:
        found: What to draw from.
        size: How many.
        parts: What the draw derives from, beside how much there is.
    """
    if len(found) <= size:
        return list(found)
    rng = np.random.default_rng(derive_seed("rows", *parts, len(found)))
    return [found[index] for index in sorted(rng.choice(len(found), size, replace=False))]
