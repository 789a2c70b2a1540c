"""Works out a part of its observation once, and keeps it."""

from tests.tsr_gym.testing.worlds import Walk


class RemembersTheGoal(Walk):
    def __init__(self):
        super().__init__()
        self._headline = None

    def reset(self, *, seed=None, options=None):
        self._headline = None
        return super().reset(seed=seed, options=options)

    def observe(self, state):
        if self._headline is None:
            self._headline = f"Go to {state.goal}."
        return f"{self._headline} You are at {state.position}."


make = RemembersTheGoal
