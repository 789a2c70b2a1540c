"""A wrapper that puts its state back into a list that clones share."""

import gymnasium as gym

from tests.tsr_gym.testing.worlds import Walk


class KeepsALog(gym.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.log = []

    def reset(self, *, seed=None, options=None):
        self.log.clear()
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, *rest, info = self.env.step(action)
        self.log.append(observation)
        return observation, *rest, {**info, "seen": len(self.log)}

    def wrapper_state(self):
        return tuple(self.log)

    def set_wrapper_state(self, state):
        self.log[:] = state


def make():
    return KeepsALog(Walk())
