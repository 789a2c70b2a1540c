"""SokobanScore: TSR's reward score for Sokoban, or that plus a potential."""

from typing import Any, Literal

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import ScoreWrapper
from tsr_gym_envs.sokoban.rules import SokobanState
from tsr_gym_envs.sokoban.score import POTENTIALS


class SokobanScore(ScoreWrapper[SokobanState]):
    """Score a turn by its reward, as the paper does, or by its reward plus the gain of a potential.

    The reward alone ties on most turns of Sokoban (92 % at four random candidates), because nothing is paid between
    the first push and the goal. A potential breaks the ties: minus the moves that are left, and a large loss where the
    position can no longer be solved.

    Args:
        env: A Sokoban environment, under any wrappers.
        potential: ``None`` for the reward alone; ``"estimate"`` for a lower bound from box-to-goal matching and dead
            squares, which any player could work out; ``"next_push"`` for an estimate from the walk to where the next
            push begins and the pushes from there, as public; ``"oracle"`` for the exact distance from a solver, which
            knows the answer: results that use it must report it.
        weight: What one move of potential is worth in reward.
    """

    score_of = "turn"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: Literal["estimate", "next_push", "oracle"] | None = None,
        weight: float = 1.0,
    ) -> None:
        if potential is not None and potential not in POTENTIALS:
            raise ConfigError(f"wanted potential None or of {sorted(POTENTIALS)}, got {potential!r}")
        super().__init__(env, potential=potential, weight=weight)
        self.potential = potential
        self.weight = weight

    def score(self, before: SokobanState, action: str, after: SokobanState, reward: float) -> float:
        """Return the reward, plus the weighted gain of the potential."""
        if self.potential is None or before is after:
            return reward
        rate = POTENTIALS[self.potential]
        return reward + self.weight * (rate(after) - rate(before))

    def rate_state(self, state: SokobanState) -> float:
        """Return the weighted potential of a state, so that it can guide other scores.

        Raises:
            ConfigError: The score has no potential.
        """
        if self.potential is None:
            raise ConfigError("wanted a SokobanScore with a potential to rate states, got one of the reward alone")
        return self.weight * POTENTIALS[self.potential](state)
