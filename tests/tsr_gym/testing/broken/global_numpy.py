"""Draws its start from numpy's global generator."""

import numpy as np

from tests.tsr_gym.testing.worlds import Place, Walk


class StartsAnywhere(Walk):
    def initial(self, rng, options):
        return Place(0, int(np.random.randint(3, 9)))  # noqa: NPY002


make = StartsAnywhere
