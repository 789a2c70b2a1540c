"""StorableInfo: infos of numbers, arrays and text alone, for files of tables."""

import json
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.records import plain

_STORED = (bool, int, float, str, np.generic, np.ndarray)


class StorableInfo(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Write every entry of `info` that is no number, array or text as JSON.

    Text worlds report lists whose length changes from turn to turn, such as the executed actions. A table, such as a
    dataset of Minari, has columns of one type and shape: there they are text, and `json.loads` reads them back.

    >>> import gymnasium as gym, tsr_gym
    >>> env = StorableInfo(gym.make("tsr/Sokoban-v0"))
    >>> env.reset(seed=1)[1]["executed"], env.step("Up || Left")[4]["executed"]
    ('[]', '["Up", "Left"]')
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, _storable(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one turn."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, _storable(info)

    def wrapper_state(self) -> None:
        """Return None: the wrapper holds nothing of the episode."""

    def set_wrapper_state(self, state: None) -> None:
        """Do nothing: see `wrapper_state`."""


def _storable(info: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, _STORED) else json.dumps(value, default=plain) for name, value in info.items()
    }
