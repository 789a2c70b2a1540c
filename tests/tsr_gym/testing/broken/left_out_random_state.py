"""Writes its snapshot by hand, without the random state."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym.random_stream import Seeded


class SavesByHand(Walk):
    def _layer(self):
        layer = super()._layer()
        return layer._replace(state=layer.state._replace(position=Seeded(0)))

    def _apply(self, layer, seed):
        position = self._stream.position if self._stream.seeded else Seeded(0)
        super()._apply(layer._replace(state=layer.state._replace(position=position)), seed)


make = SavesByHand
