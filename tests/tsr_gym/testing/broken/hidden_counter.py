"""Counts its moves in an attribute and shows the count."""

from tests.tsr_gym.testing.worlds import Walk


class CountsMoves(Walk):
    def __init__(self):
        super().__init__()
        self.moves = 0

    def initial(self, rng, options):
        self.moves = 0
        return super().initial(rng, options)

    def transition(self, state, action, rng):
        self.moves += 1
        return super().transition(state, action, rng)

    def observe(self, state):
        return f"{super().observe(state)} Moves: {self.moves}."


make = CountsMoves
