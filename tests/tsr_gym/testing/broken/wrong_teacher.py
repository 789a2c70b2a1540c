"""Has a teacher who says what is no turn."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Teaching
from tsr_gym.teaching import random_turn


class TeachesToFly(Walk):
    def teaching(self):
        return Teaching(teacher_turn=lambda env, rng: "Fly", poor_turn=random_turn)


make = TeachesToFly
