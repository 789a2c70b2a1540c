"""Raises where an action means nothing."""

from tests.tsr_gym.testing.worlds import Walk


class Insists(Walk):
    def transition(self, state, action, rng):
        number = self.actions.index(action)
        return super().transition(state, self.actions[number], rng)


make = Insists
