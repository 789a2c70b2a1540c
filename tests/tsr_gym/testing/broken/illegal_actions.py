"""Lists an action that it does not know."""

from tests.tsr_gym.testing.worlds import Walk


class PromisesToFly(Walk):
    actions = ()

    def legal_actions(self, state):
        return ("Left", "Right", "Fly")

    def transition(self, state, action, rng):
        return Walk.transition(Walk(), state, action, rng)


make = PromisesToFly
