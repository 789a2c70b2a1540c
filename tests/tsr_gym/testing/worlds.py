"""Three small environments that keep every promise; the broken ones are these with one thing changed."""

from typing import NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym import Limits, StateEnv, Step, TextEnv
from tsr_gym.codec import encode

LIMITS = Limits(max_turns=6, max_actions_per_turn=3, max_actions=10)
EIGHT_TURNS = Limits(max_turns=8)


class Place(NamedTuple):
    position: int
    goal: int


class Walk(TextEnv[Place]):
    """Walk along a line to a goal; Jump lands one to three fields further, by chance."""

    actions = ("Left", "Right", "Jump")

    def __init__(self, limits=LIMITS):
        super().__init__(("walk", 1), limits=limits)

    def initial(self, rng, options):
        return Place(0, int(rng.integers(3, 9)))

    def transition(self, state, action, rng):
        if action not in self.actions:
            return Step(state, 0.0, False, {"action_is_valid": False})
        move = {"Left": -1, "Right": 1}.get(action) or int(rng.integers(1, 4))
        after = Place(state.position + move, state.goal)
        return Step(after, -0.1 + self.is_success(after), self.is_success(after), {"moved": move})

    def observe(self, state):
        return f"You are at {state.position}, the goal is at {state.goal}."

    def state_key(self, state):
        return encode(tuple(state))

    def is_success(self, state):
        return state.position == state.goal


class Dice(StateEnv):
    """Roll a die until it has shown as much as was asked for; the action is added to the roll."""

    def __init__(self, limits=EIGHT_TURNS):
        super().__init__("dice", limits=limits)
        self.observation_space = gym.spaces.Discrete(100)
        self.action_space = gym.spaces.Discrete(3)

    def initial(self, rng, options):
        return int(rng.integers(10))

    def transition(self, state, action, rng):
        roll = int(rng.integers(1, 7)) + int(action)
        return Step(min(state + roll, 99), float(roll), state + roll > 40, {"roll": roll})

    def observe(self, state):
        return np.int64(state)


class Cells(NamedTuple):
    cells: np.ndarray


def frozen(cells):
    cells.flags.writeable = False
    return cells


class Board(StateEnv):
    """Nine lamps in an array; an action switches one, and chance another."""

    def __init__(self, limits=EIGHT_TURNS):
        super().__init__("board", limits=limits)
        self.observation_space = gym.spaces.Box(0, 1, (3, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(9)

    def initial(self, rng, options):
        return Cells(frozen(rng.integers(0, 2, (3, 3), dtype=np.uint8)))

    def transition(self, state, action, rng):
        cells = state.cells.copy()
        for cell in (int(action), int(rng.integers(9))):
            cells.flat[cell] ^= 1
        return Step(Cells(frozen(cells)), float(cells.sum()), bool(cells.all()), {})

    def observe(self, state):
        return state.cells.copy()


class PlainWrapper(gym.Wrapper):
    """A wrapper that says it holds nothing of the episode."""

    def wrapper_state(self):
        return None

    def set_wrapper_state(self, state):
        pass
