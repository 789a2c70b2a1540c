"""Goes on with its own random numbers, whatever noise it is restored with."""

from tests.tsr_gym.testing.worlds import Walk


class KeepsItsDice(Walk):
    def set_env_state(self, state, *, seed=None):
        super().set_env_state(state)


make = KeepsItsDice
