"""Has a best policy that is worse than a random one."""

from tests.tsr_gym.testing.worlds import Walk


class UpsideDown(Walk):
    def success_bars(self, state):
        return 0.7, 0.2


make = UpsideDown
