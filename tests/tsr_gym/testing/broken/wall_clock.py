"""Keeps the time of day in its state."""

from time import time
from typing import NamedTuple

from tests.tsr_gym.testing.worlds import Walk


class Place(NamedTuple):
    position: int
    goal: int
    started: float


class LooksAtTheClock(Walk):
    def initial(self, rng, options):
        return Place(*super().initial(rng, options), time())

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        return step._replace(state=Place(*step.state[:2], state.started))


make = LooksAtTheClock
