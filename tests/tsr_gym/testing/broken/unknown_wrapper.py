"""A wrapper with state that does not say what its state is."""

import gymnasium as gym

from tests.tsr_gym.testing.worlds import Walk


class CountsSteps(gym.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.steps_so_far = 0

    def step(self, action):
        self.steps_so_far += 1
        return self.env.step(action)


def make():
    return CountsSteps(Walk())
