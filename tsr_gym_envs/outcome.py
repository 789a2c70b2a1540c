"""Outcome: what one step did in a batch of environments."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.columns import Column


class Outcome(NamedTuple):
    """What one step did, `[N]` each; False and 0 where an environment rested."""

    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    facts: dict[str, Column]

    @classmethod
    def nothing(cls, num_envs: int) -> "Outcome":
        """Return the outcome of a step in which all rest."""
        facts: dict[str, Column] = {"action_is_effective": np.zeros(num_envs, np.bool_)}
        return cls(np.zeros(num_envs), np.zeros(num_envs, np.bool_), facts)
