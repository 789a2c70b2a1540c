"""Reports success as a number."""

from tests.tsr_gym.testing.worlds import Walk


class AlmostTrue(Walk):
    def is_success(self, state):
        return int(state.position == state.goal)


make = AlmostTrue
