"""A world in which every answer earns something else, so that groups of any model have advantages."""

from typing import NamedTuple

import gymnasium as gym

from tsr_gym import Limits, Step, TextEnv


class Said(NamedTuple):
    task: int
    times: int


class Counting(TextEnv[Said]):
    """Say anything; a turn earns a share of one that depends on the signs that were said."""

    draws_noise = False
    reads_tags = True
    instructions = "Say something."

    def __init__(self, max_turns=3):
        super().__init__((), limits=Limits(max_turns=max_turns), separator=None)

    def initial(self, rng, options):
        return Said(int(rng.integers(1000)), 0)

    def transition(self, state, action, rng):
        return Step(Said(state.task, state.times + 1), sum(map(ord, action)) % 11 / 10, False, {})

    def observe(self, state):
        return f"{state.task}, {state.times} times"

    def is_success(self, state):
        return False


if "tests/Counting-v0" not in gym.registry:
    gym.register("tests/Counting-v0", entry_point=Counting)
