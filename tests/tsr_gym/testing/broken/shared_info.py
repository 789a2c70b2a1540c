"""Returns one info dictionary again and again."""

from tests.tsr_gym.testing.worlds import Walk


class OneInfoForAll(Walk):
    def __init__(self):
        super().__init__()
        self._only = {}

    def step(self, action):
        *result, info = super().step(action)
        self._only.update(info)
        return *result, self._only


make = OneInfoForAll
