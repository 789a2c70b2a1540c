"""Changes the array of its state in place."""

from tests.tsr_gym.testing.worlds import Board, Cells
from tsr_gym import Step


class PaintsOver(Board):
    def initial(self, rng, options):
        return Cells(rng.integers(0, 2, (3, 3)))

    def transition(self, state, action, rng):
        state.cells.flat[int(action)] += 1
        return Step(Cells(state.cells), 0.0, False, {})


make = PaintsOver
