"""PotentialScore: the reward and the gain of a potential, which leaves the best policy the best."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import RatedTurn, ScoreWrapper
from tsr_gym.wrappers.scorers import make_scorer

End = Literal["done", "terminated"]


class PotentialScore(ScoreWrapper[Any]):
    """Score a turn by ``reward + gamma * Phi(after) - Phi(before)``, with Phi = 0 where the episode is over.

    Shaping of this form leaves the optimal policy unchanged, and no other form does so for all environments (Ng, Harada
    and Russell 1999). It needs the zero at every end that the optimum takes into account: limits of turns and actions
    belong to the task here, so a truncated episode has ended too (Grzes 2017).

    ``Phi(s) = weight * (potential(s) + offset)``. A guide works best where Phi is about the return that is still to be
    earned. Where it is negative, any end gains by getting rid of it, so that a hole may look better than a step towards
    the goal while the search is under way; `offset` raises it.

    Args:
        env: Any environment.
        potential: A function of the state (of the observation, where the environment is no `StateEnv`); or a score that
            can rate a state, in the words of a configuration: ``"SokobanScore(potential='estimate')"``.
        gamma: Discount per turn. A tree adds scores up without any, so leave it at 1 for a search.
        reward: Whether the reward is part of the score.
        weight: What a unit of potential is worth in reward.
        offset: Added to the potential, before it is weighted.
        end: Where Phi is 0: where the episode is ``"done"``, or only where the task ``"terminated"``.

    Raises:
        ConfigError: The potential is not one, or a number is out of range.

    >>> import gymnasium as gym, tsr_gym
    >>> lake = gym.make("tsr/FrozenLake-v0", desc=["SFF", "FHF", "FFG"], is_slippery=False)
    >>> env = PotentialScore(lake, "FrozenLakeScore", weight=0.25, offset=4)
    >>> _ = env.reset(seed=1)
    >>> [env.step(turn)[4]["score"] for turn in ("Right", "Left", "Down || Right")]
    [0.25, -0.25, 0.0]
    """

    score_of = "turn"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: str | Callable[[Any], float],
        gamma: float = 1.0,
        *,
        reward: bool = True,
        weight: float = 1.0,
        offset: float = 0.0,
        end: End = "done",
    ) -> None:
        if not 0 <= gamma <= 1 or end not in get_args(End):
            raise ConfigError(f"wanted 0 <= gamma <= 1 and end of {list(get_args(End))}, got {gamma} and {end!r}")
        super().__init__(env, potential=potential, gamma=gamma, reward=reward, weight=weight, offset=offset, end=end)
        self.gamma = gamma
        self.reward = reward
        self.weight = weight
        self.offset = offset
        self.end = end
        self._potential = make_scorer(potential, env).rate_state if isinstance(potential, str) else potential

    def phi(self, state: Any) -> float:
        """Return the potential of a state in which the episode goes on."""
        return self.weight * (float(self._potential(state)) + self.offset)

    def rate_turn(self, turn: RatedTurn) -> float:
        """Return the reward and the gain of the potential."""
        over = turn.terminated or (turn.truncated and self.end == "done")
        gain = (0.0 if over else self.gamma * self.phi(turn.after)) - self.phi(turn.before)
        return gain + (turn.reward if self.reward else 0.0)

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        """Return the score of a turn after which the episode goes on."""
        return self.rate_turn(RatedTurn(before, action, after, reward))
