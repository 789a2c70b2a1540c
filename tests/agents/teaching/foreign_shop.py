"""A foreign world of words with its own teacher: a label must be read and copied into the answer."""

from typing import NamedTuple

import gymnasium as gym

from tsr_gym import Limits, Step, Teaching, TextEnv

NAMES = ("anna", "boris", "carla", "dora", "emil", "fritz", "gina", "hugo")
THINGS = ("lamp", "chair", "table", "clock")


class Desk(NamedTuple):
    """The customer, the requested thing, and what was done."""

    name: str
    thing: str
    asked: bool = False
    brought: bool = False
    over: bool = False


class Errand(TextEnv[Desk]):
    """Ask a customer by name, then bring the requested thing."""

    draws_noise = False

    def __init__(self, render_mode=None):
        super().__init__(limits=Limits(4, 1), separator=None, render_mode=render_mode)

    def initial(self, rng, options):
        return Desk(NAMES[rng.integers(len(NAMES))], THINGS[rng.integers(len(THINGS))])

    def transition(self, state, action, rng):
        words = action.split()
        if words == ["ask", state.name]:
            return Step(state._replace(asked=True), 0.0, False, {})
        if len(words) == 2 and words[0] == "bring" and words[1] in THINGS:
            won = state.asked and words[1] == state.thing
            return Step(state._replace(brought=won, over=True), float(won), True, {})
        return Step(state, 0.0, False, {"action_is_valid": False})

    def observe(self, state):
        return f"wants the {state.thing}" if state.asked else f"here is {state.name}"

    def is_success(self, state):
        return state.brought

    def teaching(self):
        return Teaching(
            teacher_turn=teacher_turn,
            poor_turn=poor_turn,
            accepts=lambda env: env.is_success(env.state),
            history="full",
            max_tokens=6,
            permutable=frozenset(NAMES),
            permute=0.5,
            copying=True,
            learn={"lr": 2e-4, "filter": "mixed_success"},
        )


def teacher_turn(env, rng):
    return f"bring {env.state.thing}" if env.state.asked else f"ask {env.state.name}"


def poor_turn(env, rng):
    return f"bring {THINGS[rng.integers(len(THINGS))]}"


def sulking_turn(env, rng):
    raise RuntimeError("asked to play poorly")


if "my/Errand-v0" not in gym.registry:
    gym.register("my/Errand-v0", entry_point=Errand)
