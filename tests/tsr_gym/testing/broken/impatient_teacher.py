"""Has a teacher who takes the turn itself."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Teaching
from tsr_gym.teaching import random_turn


class TakesTheTurn(Walk):
    def teaching(self):
        return Teaching(teacher_turn=lambda env, rng: env.step("Right") and "Right", poor_turn=random_turn)


make = TakesTheTurn
