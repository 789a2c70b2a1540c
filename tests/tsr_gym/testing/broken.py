"""Environments and wrappers with one fault each; the class docstring names the fault that the checks must find."""

import datetime
import random
from dataclasses import dataclass, field, replace
from time import time
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from tests.tsr_gym.testing.worlds import Board, Cells, Place, PlainWrapper, Walk, frozen
from tsr_gym import Episode, EpisodeOver, Step, Teaching
from tsr_gym.codec import encode
from tsr_gym.random_stream import Seeded
from tsr_gym.teaching import random_turn


class TakesAll(Walk):
    """Accepts every snapshot."""

    def _check(self, state):
        pass


class PaintsOver(Board):
    """Changes the memory behind the array of its state in place."""

    def initial(self, rng, options):
        return Cells(frozen(rng.integers(0, 2, (3, 3)).view()))

    def transition(self, state, action, rng):
        state.cells.base.flat[int(action)] += 1
        return Step(Cells(state.cells), 0.0, False, {})


class RemembersTheGoal(Walk):
    """Computes a part of its observation once and keeps it."""

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


class CountsEpisodes(Walk):
    """Counts its episodes in a class attribute and shows the count."""

    episodes = 0

    def initial(self, rng, options):
        CountsEpisodes.episodes += 1
        return Place(0, 3 + CountsEpisodes.episodes)


def noisy():
    secret = np.random.default_rng(3)

    def speak(text):
        return f"{text} ({secret.integers(1000)})"

    return speak


class Whispers(Walk):
    """Keeps a generator in the closure of a function."""

    def __init__(self):
        super().__init__()
        self._speak = noisy()

    def observe(self, state):
        return self._speak(super().observe(state))


class OneKeyForAll(Walk):
    """Gives every state the same key."""

    def state_key(self, state):
        return b"here"


class BlursRewards(PlainWrapper):
    """A wrapper with a generator that is not in its state."""

    def __init__(self, env):
        super().__init__(env)
        self._dice = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self._dice = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + self._dice.normal(), *rest


def forgotten_generator():
    return BlursRewards(Walk())


class StartsAnywhere(Walk):
    """Draws its start from numpy's global generator."""

    def initial(self, rng, options):
        return Place(0, int(np.random.randint(3, 9)))  # noqa: NPY002


class RollsElsewhere(Walk):
    """Draws from the module `random`."""

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        return step._replace(reward=step.reward + random.randint(0, 9))


class NeverStops(Walk):
    """Answers steps after the end of its episode."""

    def step(self, action):
        try:
            return super().step(action)
        except EpisodeOver:
            return self.observe(self.state), 0.0, False, True, {}


class LendsItsBoard(Board):
    """Returns the memory behind the array that its state holds."""

    def initial(self, rng, options):
        return Cells(frozen(super().initial(rng, options).cells.copy().view()))

    def transition(self, state, action, rng):
        step = super().transition(Cells(state.cells.copy()), action, rng)
        return Step(Cells(frozen(step.state.cells.copy().view())), step.reward, step.terminated, {})

    def observe(self, state):
        return state.cells.base


class SeedsByHash(Walk):
    """Draws with a seed from Python's hash of a text, as one published environment does."""

    def initial(self, rng, options):
        goal = super().initial(rng, options).goal
        return Place(0, goal + int(np.random.default_rng(hash(f"goal {goal}") % 2**32).integers(1000)))


WORDS = {"apple", "pear", "cherry", "plum", "quince", "fig", "lemon", "lime"}


class ListsASet(Walk):
    """Lists the elements of a set of words in the order of the set."""

    def observe(self, state):
        return f"{super().observe(state)} You see {', '.join(WORDS)}."


class CountsMoves(Walk):
    """Counts its moves in an attribute and shows the count."""

    def __init__(self):
        super().__init__()
        self.moves = 0

    def initial(self, rng, options):
        self.moves = 0
        return super().initial(rng, options)

    def transition(self, state, action, rng):
        self.moves += 1
        return super().transition(state, action, rng)

    def observe(self, state):
        return f"{super().observe(state)} Moves: {self.moves}."


class SumsRewards(gym.Wrapper):
    """A wrapper whose restore sets only a part of its state."""

    def reset(self, *, seed=None, options=None):
        self._total, self._count = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest, info = self.env.step(action)
        self._total += reward
        self._count += 1
        return observation, reward, *rest, {**info, "mean": self._total / self._count}

    def wrapper_state(self):
        return self._total, self._count

    def set_wrapper_state(self, state):
        self._total, _ = state


def ignored_field():
    return SumsRewards(Walk())


class KeepsItsDice(Walk):
    """Continues with its own random numbers, also when it is restored with a seed."""

    def set_env_state(self, state, *, seed=None):
        super().set_env_state(state)


class PromisesToFly(Walk):
    """Lists an action that it does not know."""

    actions = ()

    def legal_actions(self, state):
        return ("Left", "Right", "Fly")

    def transition(self, state, action, rng):
        return Walk.transition(Walk(), state, action, rng)


class TakesTheTurn(Walk):
    """Has a teacher that takes the turn itself."""

    def teaching(self):
        return Teaching(teacher_turn=lambda env, rng: env.step("Right") and "Right", poor_turn=random_turn)


class Insists(Walk):
    """Raises for an invalid action."""

    def transition(self, state, action, rng):
        number = self.actions.index(action)
        return super().transition(state, self.actions[number], rng)


class KeyedByTurn(Walk):
    """Puts a counter of the episode into the key of a state."""

    def state_key(self, state):
        return encode((*state, self.episode.turns))


class StopsLate(Walk):
    """Is truncated one turn too late."""

    def step(self, action):
        self._episode = self.episode._replace(turns=self.episode.turns - 1)
        *result, info = super().step(action)
        self._episode = self.episode._replace(turns=self.episode.turns + 1)
        return *result, info | {"turns_left": info["turns_left"] - 1}


class SavesByHand(Walk):
    """Writes its snapshot by hand, without the random state."""

    def env_state(self):
        return super().env_state()._replace(position=Seeded(0))

    def set_env_state(self, state, *, seed=None):
        position = self._stream.position if self._stream.seeded else Seeded(0)
        super().set_env_state(state._replace(position=position), seed=seed)


@dataclass(frozen=True)
class PlaceWithBonus:
    position: int
    goal: int
    bonus: int = field(default=0, init=False)

    def __iter__(self):
        return iter((self.position, self.goal))


def with_bonus(place, bonus):
    place = replace(place)
    object.__setattr__(place, "bonus", bonus)
    return place


class CountsABonus(Walk):
    """Has a state with a field that its constructor does not take, so that bytes lose it."""

    def initial(self, rng, options):
        return with_bonus(PlaceWithBonus(*super().initial(rng, options)), 1)

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        after = with_bonus(PlaceWithBonus(*step.state), state.bonus + 1)
        return step._replace(state=after, reward=step.reward + after.bonus)


DICE = np.random.default_rng(4)


class RollsTheModulesDice(Walk):
    """Draws from a generator in a module global."""

    def transition(self, state, action, rng):
        return super().transition(state, action, DICE)


class SaysNothing(Walk):
    """Leaves out whether an action was valid."""

    def step(self, action):
        *result, info = super().step(action)
        del info["action_is_valid"]
        return *result, info


class RestoresThePlace(Walk):
    """Overrides restore, which then resets the counters."""

    def restore(self, snapshot, *, seed=None):
        super().restore(snapshot, seed=seed)
        self._episode = Episode(self.state)


class ReusesABuffer(Board):
    """Writes every observation into one buffer."""

    def __init__(self):
        super().__init__()
        self._buffer = np.zeros((3, 3), np.uint8)

    def observe(self, state):
        self._buffer[...] = state.cells
        return self._buffer


class OneInfoForAll(Walk):
    """Returns the same info dictionary again and again."""

    def __init__(self):
        super().__init__()
        self._only = {}

    def step(self, action):
        *result, info = super().step(action)
        self._only.update(info)
        return *result, self._only


class KeepsALog(gym.Wrapper):
    """A wrapper that restores its state into a list that clones share."""

    def __init__(self, env):
        super().__init__(env)
        self.log = []

    def reset(self, *, seed=None, options=None):
        self.log.clear()
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, *rest, info = self.env.step(action)
        self.log.append(observation)
        return observation, *rest, {**info, "seen": len(self.log)}

    def wrapper_state(self):
        return tuple(self.log)

    def set_wrapper_state(self, state):
        self.log[:] = state


def shared_list():
    return KeepsALog(Walk())


class Trail(NamedTuple):
    position: int
    goal: int
    visited: list


class LeavesATrail(Walk):
    """Has a state that holds a list."""

    def initial(self, rng, options):
        return Trail(*super().initial(rng, options), [])

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        state.visited.append(state.position)
        return step._replace(state=Trail(*step.state[:2], state.visited))


class SaysTheHour(Walk):
    """Shows the hour."""

    def observe(self, state):
        return f"{super().observe(state)} It is {datetime.datetime.now():%d.%m. %H} o'clock."


class CountsSteps(gym.Wrapper):
    """A wrapper with state that does not declare it."""

    def __init__(self, env):
        super().__init__(env)
        self.steps_so_far = 0

    def step(self, action):
        self.steps_so_far += 1
        return self.env.step(action)


def unknown_wrapper():
    return CountsSteps(Walk())


class OpensNewDice(Walk):
    """Makes a generator without a seed in every turn."""

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        return step._replace(reward=step.reward + np.random.default_rng().random())


class TimedPlace(NamedTuple):
    position: int
    goal: int
    started: float


class LooksAtTheClock(Walk):
    """Keeps the time of day in its state."""

    def initial(self, rng, options):
        return TimedPlace(*super().initial(rng, options), time())

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        return step._replace(state=TimedPlace(*step.state[:2], state.started))


class UpsideDown(Walk):
    """Has a best policy that is worse than a random one."""

    def success_bars(self, state):
        return 0.7, 0.2


class RecommendsTooMuch(Walk):
    """Recommends a turn with too many actions."""

    def optimal_turn(self, state, turns_left, actions_left):
        return " || ".join(["Right"] * 9)


class AlmostTrue(Walk):
    """Reports success as a number."""

    def is_success(self, state):
        return int(state.position == state.goal)


class TeachesToFly(Walk):
    """Has a teacher that returns an invalid turn."""

    def teaching(self):
        return Teaching(teacher_turn=lambda env, rng: "Fly", poor_turn=random_turn)
