"""Trial: one environment under test, with the episodes on record that the rules compare with."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from tsr_gym.foreign.adapters import adapter_of
from tsr_gym.foreign.mujoco import MujocoAdapter
from tsr_gym.testing.facts import is_own, layers_of, name_of
from tsr_gym.testing.rebuild import Recipe
from tsr_gym.testing.recording import Recording, has_bytes

# Gymnasium's wrappers that remember earlier episodes across a reset.
_REMEMBER = (
    gym.wrappers.MaxAndSkipObservation,
    gym.wrappers.NormalizeObservation,
    gym.wrappers.NormalizeReward,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a rule about snapshots is given.

    Attributes:
        env: The stack under test.
        recipe: How to make it again.
        recordings: One episode per seed.
        steps: Most turns of an episode.
    """

    env: gym.Env[Any, Any]
    recipe: Recipe
    recordings: tuple[Recording, ...]
    steps: int

    @property
    def name(self) -> str:
        """How messages call the environment."""
        return name_of(self.env.unwrapped)

    @property
    def own(self) -> bool:
        """Whether the environment is a `StateEnv`, of which more is asked than of others."""
        return is_own(self.env)

    @property
    def has_bytes(self) -> bool:
        """Whether all snapshots on record have a byte form."""
        return all(has_bytes(snap) for recording in self.recordings for snap in recording.snapshots)

    @property
    def starts_afresh(self) -> bool:
        """Whether a reset forgets earlier episodes; otherwise only restores can be compared with the record."""
        layers = layers_of(self.env)
        if any(isinstance(layer, _REMEMBER) for layer in layers):
            return False
        # The camera of MuJoCo's pictures stays where the first picture of all was taken.
        pictured = any(isinstance(layer, gym.wrappers.AddRenderObservation) for layer in layers)
        return not (pictured and isinstance(adapter_of(layers[-1]), MujocoAdapter))
