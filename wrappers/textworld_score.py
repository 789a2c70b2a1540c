"""TextWorldScore: how far the quests of a TextWorld game have come."""

from typing import Any, Literal

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import ScoreWrapper
from tsr_gym_envs.textworld.state import TextWorldState

KINDS = ("quests", "points")
# Worse than any place in a game that can still be won.
LOST = -1.0


class TextWorldScore(ScoreWrapper[TextWorldState]):
    """Score the state that a turn reached: progress of the quests, or the points; less than both where it is lost.

    Progress is the mean over the quests of the share of their conditions that hold, 1 for those that were completed.
    Conditions are facts of TextWorld's logic, such as "the carrot is sliced", which the player may not know yet.

    Args:
        env: A TextWorld environment, under any wrappers.
        kind: ``"quests"``, or ``"points"`` for the points that the game itself reports.
    """

    score_of = "state"

    def __init__(self, env: gym.Env[Any, Any], kind: Literal["quests", "points"] = "quests") -> None:
        if kind not in KINDS:
            raise ConfigError(f"wanted kind of {sorted(KINDS)}, got {kind!r}")
        super().__init__(env, kind=kind)
        self.kind = kind

    def score(self, before: TextWorldState, action: str, after: TextWorldState, reward: float) -> float:
        """Return the progress of the quests after the turn."""
        scene = after.scene
        if scene.ended == "lost":
            return LOST
        return scene.progress if self.kind == "quests" else float(scene.points)
