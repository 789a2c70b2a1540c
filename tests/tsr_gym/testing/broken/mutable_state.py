"""Has a state that is an ordinary object."""

from tests.tsr_gym.testing.worlds import Place, Walk


class Pawn:
    def __init__(self, position, goal):
        self.position = position
        self.goal = goal


class MovesAPawn(Walk):
    def initial(self, rng, options):
        return Pawn(*super().initial(rng, options))

    def transition(self, state, action, rng):
        step = super().transition(Place(state.position, state.goal), action, rng)
        state.position = step.state.position
        return step._replace(state=state)


make = MovesAPawn
