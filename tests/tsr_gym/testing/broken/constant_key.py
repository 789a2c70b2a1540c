"""Gives every state the same key."""

from tests.tsr_gym.testing.worlds import Walk


class OneKeyForAll(Walk):
    def state_key(self, state):
        return b"here"


make = OneKeyForAll
