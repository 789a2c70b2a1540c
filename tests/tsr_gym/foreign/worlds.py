"""Environments as others write them, some with hidden state, and `play`, which compares two of them bit for bit."""

import itertools
import pickle
import random
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle


def plain(value):
    """Return a value in a form that pickles to equal bytes exactly for equal types and bits."""
    if isinstance(value, np.ndarray | np.generic):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "time"}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(plain, value)]
    return value


def play(env, actions):
    """Return the results of the actions until the episode ends, exceptions included."""
    came = []
    for action in actions:
        try:
            result = env.step(action)
        except Exception as error:
            came.append(repr(error))
            continue
        came.append(pickle.dumps(plain(result)))
        if result[2] or result[3]:
            break
    return came


OBSERVATIONS = gym.spaces.Box(-1e6, 1e6, (2,), np.float64)


class Plain(gym.Env):
    """Walk on a line by an action and a die; subclasses store the state in other places."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.observation_space = OBSERVATIONS
        self.action_space = gym.spaces.Discrete(3)
        self.render_mode = render_mode
        self.position = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = int(self.np_random.integers(10)) + (options or {}).get("offset", 0)
        self.begin(seed)
        return self.observe(), {}

    def step(self, action):
        self.position += int(action) + self.roll()
        return self.observe(), float(self.position), self.position > 60, False, {"place": self.position}

    def begin(self, seed):
        """Hook of subclasses for the start of an episode."""

    def roll(self):
        return int(self.np_random.integers(1, 7))

    def observe(self):
        return np.array([self.position, 0.0])


class RemembersItsArguments(Plain, EzPickle):
    """Its copy has the state right after construction."""

    def __init__(self, bonus=0, render_mode=None):
        Plain.__init__(self, render_mode)
        EzPickle.__init__(self, bonus, render_mode=render_mode)
        self.bonus = bonus

    def roll(self):
        return super().roll() + self.bonus


class Mode(Enum):
    CALM = 0
    WILD = 1


class Card(NamedTuple):
    suit: str
    marks: list


@dataclass
class Body:
    speed: float = 0.0
    path: list = field(default_factory=list)


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self):
        self.count = 0


class ManyKinds(RemembersItsArguments):
    """Holds values of every plain type, shared between attributes."""

    def begin(self, seed):
        self.body = Body(0.5)
        self.shared = self.body.path
        self.queue = deque([1, 2], maxlen=3)
        self.counts = defaultdict(int)
        self.mode = Mode.CALM
        self.card = Card("hearts", [1])
        self.visited = {(0, 0), (1, 2)}
        self.slotted = Slotted()
        self.grid = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        self.cells = np.array([None, self.body], dtype=object)
        self.moves = {0: self.stay, 1: self.stay, 2: self.run}
        self.cycle = [self.queue]
        self.cycle.append(self.cycle)
        self.own = np.random.default_rng(seed)
        self.legacy = np.random.RandomState(seed)
        self.python = random.Random(seed)
        self.pure = lambda number: number + 1
        self.key = {("body", 1): "x"}

    def stay(self):
        return 0

    def run(self):
        self.body.speed *= 1.5
        return 1

    def step(self, action):
        self.position += self.moves[int(action)]() + int(self.own.integers(3)) + int(self.legacy.randint(3))
        self.position += self.python.randrange(3) + self.roll() + self.pure(1)
        self.shared.append(self.position)
        self.counts[self.position % 4] += 1
        self.queue.append(self.position)
        self.card.marks.append(len(self.queue))
        self.visited.add((self.position, len(self.visited)))
        self.slotted.count += 1
        self.cells[1].speed += 0.25
        self.grid[0, 1] += self.body.speed
        self.mode = Mode.WILD if self.position % 2 else Mode.CALM
        observation = np.array([self.position, self.grid.sum() + len(self.body.path) + len(self.cycle[1][0])])
        return observation, self.body.speed, False, False, {"mode": self.mode.name, "visited": len(self.visited)}


class CountsWithAnIterator(ManyKinds):
    """Holds an object that can be copied and has no byte form."""

    def begin(self, seed):
        super().begin(seed)
        self.score = itertools.count(3)

    def roll(self):
        return super().roll() + next(self.score)


class InnerEnv(Plain):
    """Plays another environment, whose copy has the state right after construction."""

    def __init__(self):
        super().__init__()
        self.inner = RemembersItsArguments(bonus=2)

    def begin(self, seed):
        self.inner.reset(seed=seed)

    def step(self, action):
        return self.inner.step(action)


class Clocked(Plain):
    """Reports its duration, which must not be compared."""

    def step(self, action):
        *result, info = super().step(action)
        return *result, info | {"time": time.perf_counter()}


class Raises(Plain):
    """Raises for a bad action, after drawing a number."""

    def step(self, action):
        result = super().step(action)
        if self.position % 5 == 0:
            raise ValueError(f"no way from {self.position}")
        return result


# Environments that cannot be copied.


class Locked(Plain):
    def begin(self, seed):
        self.lock = threading.Lock()


class LockedWithArguments(Locked, EzPickle):
    def __init__(self, render_mode=None):
        Locked.__init__(self, render_mode)
        EzPickle.__init__(self, render_mode=render_mode)


class Generating(Plain):
    """Holds its rules as a running generator function."""

    def begin(self, seed):
        self.rolls = self.rolling()

    def rolling(self):
        while True:
            yield int(self.np_random.integers(1, 7))

    def roll(self):
        return next(self.rolls)


class Closure(Plain):
    def begin(self, seed):
        memory = [0]

        def remember():
            memory.append(len(memory))
            return memory[-1]

        self.remember = remember

    def roll(self):
        return self.remember()


class Frees(Plain):
    """Frees a resource when it is deleted."""

    freed = 0

    def __del__(self):
        type(self).freed += 1


class HoldsWhatFrees(Plain):
    def begin(self, seed):
        self.resource = Resource()


class Resource:
    freed = 0

    def __del__(self):
        type(self).freed += 1


class Views(Plain):
    def begin(self, seed):
        self.all = np.zeros(4)
        self.first = self.all[:2]

    def roll(self):
        self.first += 1
        return int(self.all.sum())


# Environments that hide their state.


class DrawsGlobally(Plain):
    def roll(self):
        return int(np.random.randint(1, 7))  # noqa: NPY002


class DrawsPythonGlobally(Plain):
    def roll(self):
        return random.randrange(1, 7)


class DrawsFromItsSpace(Plain):
    def roll(self):
        return int(self.action_space.sample())


class CountsInItsClass(Plain):
    count = 0

    def roll(self):
        type(self).count += 1
        return type(self).count


WORLDS = {}


class HoldsANumber(Plain):
    """Keeps its world outside of the object and stores only its number, as bindings of simulators do."""

    def begin(self, seed):
        self.handle = len(WORLDS)
        WORLDS[self.handle] = [0]

    def roll(self):
        WORLDS[self.handle].append(0)
        return len(WORLDS[self.handle])


class LooksAtTheClock(Plain):
    def roll(self):
        return time.perf_counter_ns() % 1000


class RemembersEpisodes(Locked):
    """Cannot be copied, and every episode is harder than the one before."""

    episodes = 0

    def begin(self, seed):
        super().begin(seed)
        self.episodes += 1

    def roll(self):
        return self.episodes


class RemembersEpisodesWithArguments(RemembersEpisodes, EzPickle):
    def __init__(self, render_mode=None):
        RemembersEpisodes.__init__(self, render_mode)
        EzPickle.__init__(self, render_mode=render_mode)


class LockedAndRandom(LockedWithArguments):
    def roll(self):
        return random.randrange(1, 7)


class Promises(Plain):
    """Declares its state."""

    def env_state(self):
        return self.position

    def set_env_state(self, state):
        self.position = state

    def begin(self, seed):
        self.lock = threading.Lock()
