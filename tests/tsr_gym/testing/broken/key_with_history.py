"""Puts a counter of the episode into the key of a state."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym.codec import encode


class KeyedByTurn(Walk):
    def state_key(self, state):
        return encode((*state, self.episode.turns))


make = KeyedByTurn
