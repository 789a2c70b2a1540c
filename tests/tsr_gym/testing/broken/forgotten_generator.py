"""A wrapper with dice of its own that are not in its state."""

import numpy as np

from tests.tsr_gym.testing.worlds import PlainWrapper, Walk


class BlursRewards(PlainWrapper):
    def __init__(self, env):
        super().__init__(env)
        self._dice = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self._dice = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + self._dice.normal(), *rest


def make():
    return BlursRewards(Walk())
