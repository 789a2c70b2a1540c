"""Small environments for the checks: three of ours without a fault, and foreign ones without and with a fault."""

import threading
import time
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
    """Roll a die and add the action; the episode ends above 40."""

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
    """Nine lamps in an array; an action switches one, and a random one is switched, too."""

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
    """A wrapper that declares no state."""

    def wrapper_state(self):
        return None

    def set_wrapper_state(self, state):
        pass


class Drift(gym.Env):
    """Push an object along a line against the wind; its attributes can be copied."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.velocity = float(self.np_random.normal()), 0.0
        return self.observe(), {}

    def step(self, action):
        self.velocity += int(action) - 1 + self.np_random.normal() / 9
        self.position += self.velocity
        return self.observe(), -abs(self.position), abs(self.position) > 30, False, {"speed": abs(self.velocity)}

    def observe(self):
        return np.array([self.position, self.velocity])


class Stated(Drift):
    """Declares its state."""

    def env_state(self):
        return self.position, self.velocity

    def set_env_state(self, state):
        self.position, self.velocity = state


class Locked(Drift):
    """Holds an object that cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()


class Unseeded(Locked):
    """Holds an object that cannot be copied, and does not repeat itself."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.random.default_rng().random(), *rest


class Many(Drift):
    """Has observations and infos of many types, writes into its actions, and reads the clock."""

    observation_space = gym.spaces.Dict(
        {
            "place": gym.spaces.Tuple((Drift.observation_space, gym.spaces.Discrete(100))),
            "text": gym.spaces.Text(20),
            "bits": gym.spaces.MultiBinary(3),
        }
    )
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.started = time.perf_counter()
        return super().reset(seed=seed)

    def step(self, action):
        action *= 3
        observation, reward, *rest, info = super().step(action.sum().round() % 3)
        elapsed = time.perf_counter() - self.started
        info |= {"elapsed": elapsed, "near": {"goal", "wall"}, "all": [(1, None), np.float32(reward)], "me": Drift}
        return observation, np.float32(reward), *rest, info

    def observe(self):
        place = super().observe(), int(abs(self.position) % 100)
        return {"place": place, "text": f"{self.position:.3f}", "bits": np.array([1, 0, 1], np.int8)}


class ReusesItsBuffer(Drift):
    """Returns the same array again and again, which spoils recorded observations but no snapshot."""

    def __init__(self):
        self.buffer = np.zeros(2)

    def observe(self):
        self.buffer[:] = self.position, self.velocity
        return self.buffer


class Echo(gym.Wrapper):
    """Stores the last observation, and declares it as state."""

    last = None

    def step(self, action):
        observation, *rest, info = self.env.step(action)
        info["before"], self.last = self.last, observation.tolist()
        return observation, *rest, info

    def reset(self, *, seed=None, options=None):
        self.last = None
        return self.env.reset(seed=seed, options=options)

    def wrapper_state(self):
        return None if self.last is None else tuple(self.last)

    def set_wrapper_state(self, state):
        self.last = None if state is None else list(state)


class ForgetsItsSpeed(Stated):
    def env_state(self):
        return self.position

    def set_env_state(self, state):
        self.position = state


class LendsItsList(Stated):
    """Its declared state is the list that it changes."""

    def reset(self, *, seed=None, options=None):
        self.trail = []
        return super().reset(seed=seed)

    def step(self, action):
        self.trail.append(int(action))
        observation, _, *rest = super().step(action)
        return observation, float(len(self.trail)), *rest

    def env_state(self):
        return self.position, self.velocity, self.trail

    def set_env_state(self, state):
        self.position, self.velocity, self.trail = state


class CopiesThatRollElsewhere(Drift):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.random.rand(), *rest  # noqa: NPY002


class SharesItsDice(Stated):
    dice = np.random.default_rng(3)

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.dice.random(), *rest


class GrowsOld(Drift):
    """Counts its steps over all episodes."""

    age = 0

    def step(self, action):
        self.age += 1
        observation, _, *rest = super().step(action)
        return observation, float(self.age), *rest


class BringsItsDice(Drift):
    """Has a separate generator, which no seed reaches."""

    def __init__(self):
        self.dice = np.random.default_rng()

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.dice.random(), *rest
