"""Opens a generator of its own in every turn, without a seed."""

import numpy as np

from tests.tsr_gym.testing.worlds import Walk


class OpensNewDice(Walk):
    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        return step._replace(reward=step.reward + np.random.default_rng().random())


make = OpensNewDice
