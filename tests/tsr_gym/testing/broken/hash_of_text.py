"""Draws with a seed from Python's hash of a text, as one published environment does."""

import numpy as np

from tests.tsr_gym.testing.worlds import Place, Walk


class SeedsByHash(Walk):
    def initial(self, rng, options):
        goal = super().initial(rng, options).goal
        return Place(0, goal + int(np.random.default_rng(hash(f"goal {goal}") % 2**32).integers(1000)))


make = SeedsByHash
