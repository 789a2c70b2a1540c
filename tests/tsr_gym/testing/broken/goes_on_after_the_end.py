"""Answers steps after the end of its episode."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import EpisodeOver


class NeverStops(Walk):
    def step(self, action):
        try:
            return super().step(action)
        except EpisodeOver:
            return self.observe(self.state), 0.0, False, True, {}


make = NeverStops
