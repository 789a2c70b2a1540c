"""Is cut off one turn too late."""

from tests.tsr_gym.testing.worlds import Walk


class StopsLate(Walk):
    def step(self, action):
        self._episode = self.episode._replace(turns=self.episode.turns - 1)
        *result, info = super().step(action)
        self._episode = self.episode._replace(turns=self.episode.turns + 1)
        return *result, info | {"turns_left": info["turns_left"] - 1}


make = StopsLate
