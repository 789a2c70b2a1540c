"""Leaves out whether an action was understood."""

from tests.tsr_gym.testing.worlds import Walk


class SaysNothing(Walk):
    def step(self, action):
        *result, info = super().step(action)
        del info["action_is_valid"]
        return *result, info


make = SaysNothing
