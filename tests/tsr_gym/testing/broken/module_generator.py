"""Draws from a generator that lies in its module."""

import numpy as np

from tests.tsr_gym.testing.worlds import Walk

DICE = np.random.default_rng(4)


class RollsTheModulesDice(Walk):
    def transition(self, state, action, rng):
        return super().transition(state, action, DICE)


make = RollsTheModulesDice
