"""Has a state that holds a list."""

from typing import NamedTuple

from tests.tsr_gym.testing.worlds import Walk


class Trail(NamedTuple):
    position: int
    goal: int
    visited: list


class LeavesATrail(Walk):
    def initial(self, rng, options):
        return Trail(*super().initial(rng, options), [])

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        state.visited.append(state.position)
        return step._replace(state=Trail(*step.state[:2], state.visited))


make = LeavesATrail
