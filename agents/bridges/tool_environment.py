"""ToolEnvironment: an environment as an object with a tool, for trainers that own the loop, such as TRL's."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.registration import env_id
from tsr_gym.text_env import TextEnv


def tsr_environment(env: str, **settings: Any) -> Callable[[], Any]:
    """Return what ``GRPOTrainer(environment_factory=...)`` takes: a callable that makes an environment with a tool.

    A row of the dataset needs the column ``task``, the seed of its instance. The trainer owns the loop: it samples,
    calls the tool and ends an episode, so nothing can be branched; for search use `tsr_rollout_func`.

    Args:
        env: Gymnasium id or short name of an environment of text.
        settings: Of the environment.

    Raises:
        ConfigError: The environment is not made of text.
    """
    name = env_id(env)
    base = gym.make(name, **settings).unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text (a tsr_gym.TextEnv), {name} is a {type(base).__name__}")

    def make() -> ToolEnvironment:
        return ToolEnvironment(gym.make(name, **settings), base.instructions)

    return make


class ToolEnvironment:
    """One episode at a time; its public methods but `reset` and `get_reward` are tools.

    Args:
        env: An environment of text.
        instructions: What is told before the first observation.
    """

    def __init__(self, env: gym.Env[str, str], instructions: str) -> None:
        self._env = env
        self._instructions = instructions
        self._reward = 0.0
        self._over = True

    def reset(self, task: int = 0, **columns: Any) -> str:
        """Begin the episode of a row, and return the rules and the first observation."""
        observation, _ = self._env.reset(seed=int(task))
        self._reward, self._over = 0.0, False
        return f"{self._instructions}\n\n{observation}"

    def act(self, action: str) -> str:
        """
        Take a turn in the environment.

        Args:
            action: What to do in this turn, in the words of the rules.

        Returns:
            What the environment answers.
        """
        if self._over:
            return "The episode is over."
        observation, reward, terminated, truncated, _ = self._env.step(action)
        self._reward += float(reward)
        self._over = terminated or truncated
        return f"{observation}\n\nThe episode is over." if self._over else observation

    def get_reward(self) -> float:
        """Return the sum of the rewards of the episode."""
        return self._reward
