"""Draws from the module `random`."""

import random

from tests.tsr_gym.testing.worlds import Walk


class RollsElsewhere(Walk):
    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        return step._replace(reward=step.reward + random.randint(0, 9))


make = RollsElsewhere
