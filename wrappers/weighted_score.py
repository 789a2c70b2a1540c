"""WeightedScore: a weighted sum of scores, with every part in sight."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import RatedTurn, ScoreWrapper
from tsr_gym.wrappers.scorers import Scorer, make_scorer


class WeightedScore(ScoreWrapper[Any]):
    """Score a turn by a weighted sum of other scores.

    ``info["scores"]`` holds what each part says by itself. Where all parts rate states, so does the sum. Where some
    rate turns, the sum rates turns, and a state counts by what the turn gained, ``score(after) - score(before)``. Along
    a path this adds up to the last state's score but for a constant, so paths from one root are ranked as by the sum
    of what each kind of score means by itself.

    Args:
        env: The environment that all parts rate.
        parts: Scorer and weight by name. A scorer is a class or function that takes the environment, or text such as
            ``"SokobanScore(potential='estimate')"``.

    Raises:
        ConfigError: There are no parts, or a scorer cannot be made; from `step`: a score of states is mixed with one
            of turns and looks at more than the state.

    >>> import gymnasium as gym, tsr_gym
    >>> parts = {"reward": ("tsr_gym.wrappers.reward_score:RewardScore", 10), "near": ("FrozenLakeScore", 0.5)}
    >>> env = WeightedScore(gym.make("tsr/FrozenLake-v0", desc=["SFG"], is_slippery=False), parts)
    >>> _ = env.reset(seed=1)
    >>> info = env.step("Right")[4]
    >>> info["scores"], info["score"]
    ({'reward': 0.0, 'near': -1.0}, 0.5)
    """

    def __init__(self, env: gym.Env[Any, Any], parts: Mapping[str, tuple[Scorer, float]]) -> None:
        if not parts:
            raise ConfigError("wanted at least one part of the score, got none")
        super().__init__(env, parts=dict(parts))
        self.weights = {name: float(weight) for name, (_, weight) in parts.items()}
        self.parts = {name: make_scorer(scorer, env) for name, (scorer, _) in parts.items()}
        kinds = {part.score_of for part in self.parts.values()}
        self.score_of = "state" if kinds == {"state"} else "turn"
        self._gains = {name for name, part in self.parts.items() if part.score_of != self.score_of}

    def facts(self, turn: RatedTurn) -> dict[str, Any]:
        """Return the sum and its parts."""
        scores = {name: part.rate_turn(turn) for name, part in self.parts.items()}
        total = 0.0
        for name, score in scores.items():
            start = self.parts[name].rate_state(turn.before) if name in self._gains else 0.0
            total += self.weights[name] * (score - start)
        return {"score": total, "scores": scores}

    def rate_turn(self, turn: RatedTurn) -> float:
        """Return the weighted sum."""
        return float(self.facts(turn)["score"])

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        """Return the score of a turn after which the episode goes on."""
        return self.rate_turn(RatedTurn(before, action, after, reward))
