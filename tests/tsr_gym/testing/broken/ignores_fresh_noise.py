"""Goes on with its own random numbers, whatever noise it is restored with."""

from tests.tsr_gym.testing.worlds import Walk


class KeepsItsDice(Walk):
    def _apply(self, layer, seed):
        super()._apply(layer, None)


make = KeepsItsDice
