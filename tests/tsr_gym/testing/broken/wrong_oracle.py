"""Recommends a turn that is longer than a turn may be."""

from tests.tsr_gym.testing.worlds import Walk


class RecommendsTooMuch(Walk):
    def optimal_turn(self, state, turns_left, actions_left):
        return " || ".join(["Right"] * 9)


make = RecommendsTooMuch
