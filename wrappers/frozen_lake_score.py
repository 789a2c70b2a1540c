"""FrozenLakeScore: TSR's proxy for FrozenLake."""

from typing import Any

import gymnasium as gym

from tsr_gym.wrappers.score_wrapper import ScoreWrapper
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState, proximity


class FrozenLakeScore(ScoreWrapper[FrozenLakeState]):
    """Score the state that a turn reached: minus its distance to the goal, minus a penalty in a hole (TSR Eq. 14).

    Args:
        env: A FrozenLake environment, under any wrappers.
        hole_penalty: The equation's lambda. The paper's value is not known; the default makes any hole worse than any
            cell of a 4x4 lake.
    """

    score_of = "state"

    def __init__(self, env: gym.Env[Any, Any], hole_penalty: float = 10.0) -> None:
        super().__init__(env, hole_penalty=hole_penalty)
        self.hole_penalty = hole_penalty

    def score(self, before: FrozenLakeState, action: str, after: FrozenLakeState, reward: float) -> float:
        """Return Eq. 14 of the state after the turn."""
        return proximity(after, hole_penalty=self.hole_penalty)
