"""An environment of your own: go down some stairs and stop exactly at the last one.

python -m examples.stairs                                        # checks it
tsr train examples.stairs:my/Stairs-v0 --updates 20 --out runs/stairs
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym import Limits, Step, TextEnv
from tsr_gym.testing import check_snapshot, check_text_env


class Stairs(NamedTuple):
    """Everything that decides the future; an immutable value."""

    left: int


class StairsEnv(TextEnv[Stairs]):
    """Go down 4 to 9 stairs in three turns, one to three at a time; a player who goes too far has lost."""

    actions = ("One", "Two", "Three")
    instructions = "Go down the stairs, One, Two or Three at a time, and stop exactly at the last one."
    draws_noise = False

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(limits=Limits(max_turns=3, max_actions_per_turn=1), render_mode=render_mode)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> Stairs:
        return Stairs(int(rng.integers(4, 10)))

    def transition(self, state: Stairs, action: str, rng: np.random.Generator) -> Step:
        if action not in self.actions:
            return Step(state, 0.0, False, {"action_is_valid": False, "invalid_reason": f"no action {action[:20]!r}"})
        after = Stairs(state.left - 1 - self.actions.index(action))
        return Step(after, float(after.left == 0), after.left <= 0, {})

    def observe(self, state: Stairs) -> str:
        return f"{max(state.left, 0)} left"

    def state_key(self, state: Stairs) -> bytes:
        return str(state.left).encode()

    def is_success(self, state: Stairs) -> bool:
        return state.left == 0

    def optimal_turn(self, state: Stairs, turns_left: int | None, actions_left: int | None) -> str | None:
        return self.actions[min(state.left, 3) - 1]


gym.register("my/Stairs-v0", entry_point="examples.stairs:StairsEnv")

if __name__ == "__main__":
    check_text_env(gym.make("examples.stairs:my/Stairs-v0"))
    check_snapshot(gym.make("examples.stairs:my/Stairs-v0"))
    print("both checks passed")
