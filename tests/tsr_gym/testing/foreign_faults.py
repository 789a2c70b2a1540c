"""Environments and wrappers of others whose snapshots cannot be exact, each with one fault."""

import time

import gymnasium as gym
import numpy as np

from tests.tsr_gym.testing.foreign_worlds import Drift, Echo, Stated

WORDS = {"apple", "pear", "cherry", "plum", "quince", "fig", "lemon", "lime"}


class ForgetsItsSpeed(Stated):
    def env_state(self):
        return self.position

    def set_env_state(self, state):
        self.position = state


class LendsItsList(Stated):
    """The state that it hands out is the very list that it changes."""

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


class RollsElsewhere(Stated):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.random.rand(), *rest  # noqa: NPY002


class CopiesThatRollElsewhere(Drift):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.random.rand(), *rest  # noqa: NPY002


class LooksAtTheClock(Stated):
    def observe(self):
        return np.array([self.position, time.time()])


class SharesItsDice(Stated):
    dice = np.random.default_rng(3)

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.dice.random(), *rest


class CountsForAll(Stated):
    """Counts steps in its class, so that all objects share the count."""

    steps = 0

    def step(self, action):
        CountsForAll.steps += 1
        observation, _, *rest = super().step(action)
        return observation, float(CountsForAll.steps), *rest


class GrowsOld(Drift):
    """Never forgets how old it is."""

    age = 0

    def step(self, action):
        self.age += 1
        observation, _, *rest = super().step(action)
        return observation, float(self.age), *rest


class BringsItsDice(Drift):
    """Has a generator of its own, which no seed reaches."""

    def __init__(self):
        self.dice = np.random.default_rng()

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.dice.random(), *rest


class ListsASet(Drift):
    def step(self, action):
        *result, _ = super().step(action)
        return *result, {"seen": ", ".join(WORDS)}


class CountsSteps(gym.Wrapper):
    """Holds something, and does not say what."""

    def __init__(self, env):
        super().__init__(env)
        self.steps_so_far = 0


class ForgetfulEcho(Echo):
    def set_wrapper_state(self, state):
        self.last = None


def counted_steps():
    return CountsSteps(Drift())


def forgetful_echo():
    return ForgetfulEcho(Stated())
