"""Keeps a generator in the closure of a function."""

import numpy as np

from tests.tsr_gym.testing.worlds import Walk


def noisy():
    secret = np.random.default_rng(3)

    def speak(text):
        return f"{text} ({secret.integers(1000)})"

    return speak


class Whispers(Walk):
    def __init__(self):
        super().__init__()
        self._speak = noisy()

    def observe(self, state):
        return self._speak(super().observe(state))


make = Whispers
