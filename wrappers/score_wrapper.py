"""ScoreWrapper: a guide for search, written into info and never into the reward."""

from typing import Any, Generic, Literal, TypeVar

import gymnasium as gym

from tsr_gym.state_env import StateEnv

StateT = TypeVar("StateT")


class ScoreWrapper(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs, Generic[StateT]):
    """Score every turn for a search (the paper's S, Eq. 5); a subclass writes `score`.

    Args:
        env: The environment.
        settings: What the subclass was constructed with, for the environment's spec.

    Attributes:
        score_of: Whether scores rate a ``"turn"``, so that a path's scores add up, or the ``"state"`` that it reached,
            so that only the last one counts.
    """

    score_of: Literal["turn", "state"] = "turn"

    def __init__(self, env: gym.Env[Any, Any], **settings: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **settings)
        super().__init__(env)
        self._last: Any = None

    def score(self, before: StateT, action: Any, after: StateT, reward: float) -> float:
        """Return how good a turn looks; a pure function.

        Args:
            before: State of the unwrapped `StateEnv` before the turn; the observation for other environments.
            action: The action as the environment was given it, tags removed.
            after: The same after the turn.
            reward: The turn's reward, penalties included.
        """
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._last = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a turn and write its score into ``info["score"]``."""
        base: Any = self.unwrapped
        has_states = isinstance(base, StateEnv)
        before = base.state if has_states else self._last
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._last = observation
        after = base.state if has_states else observation
        info["score"] = float(self.score(before, info.get("action", action), after, float(reward)))
        return observation, float(reward), terminated, truncated, info

    def wrapper_state(self) -> Any:
        """Return the last observation where scores depend on it, None otherwise."""
        return None if isinstance(self.unwrapped, StateEnv) else self._last

    def set_wrapper_state(self, state: Any) -> None:
        """Continue from a state that `wrapper_state` returned."""
        self._last = state
