"""Has a restore of its own, which forgets the counters."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Episode


class RestoresThePlace(Walk):
    def restore(self, snapshot, *, seed=None):
        super().restore(snapshot, seed=seed)
        self._episode = Episode(self.state)


make = RestoresThePlace
