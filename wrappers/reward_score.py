"""RewardScore: the environment's reward as the score, written down so that it can be a part of a sum."""

from typing import Any

import gymnasium as gym

from tsr_gym.wrappers.score_wrapper import ScoreWrapper


class RewardScore(ScoreWrapper[Any]):
    """Score a turn by its reward, penalties included, as a tree without any scorer does.

    Args:
        env: Any environment.
    """

    score_of = "turn"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        """Return the reward."""
        return reward
