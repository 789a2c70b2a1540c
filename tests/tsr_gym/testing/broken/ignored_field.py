"""A wrapper whose restore puts back only a part of its state."""

import gymnasium as gym

from tests.tsr_gym.testing.worlds import Walk


class SumsRewards(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        self._total, self._count = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest, info = self.env.step(action)
        self._total += reward
        self._count += 1
        return observation, reward, *rest, {**info, "mean": self._total / self._count}

    def wrapper_state(self):
        return self._total, self._count

    def set_wrapper_state(self, state):
        self._total, _ = state


def make():
    return SumsRewards(Walk())
