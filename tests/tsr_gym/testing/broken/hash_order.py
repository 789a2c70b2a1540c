"""Lists the elements of a set of words as they come."""

from tests.tsr_gym.testing.worlds import Walk

WORDS = {"apple", "pear", "cherry", "plum", "quince", "fig", "lemon", "lime"}


class ListsASet(Walk):
    def observe(self, state):
        return f"{super().observe(state)} You see {', '.join(WORDS)}."


make = ListsASet
