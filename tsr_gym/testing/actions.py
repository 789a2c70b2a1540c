"""Actions that a stack accepts: sensible turns, several actions in a turn, and junk."""

import copy
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.spaces import FreeText
from tsr_gym.state_env import left
from tsr_gym.testing.facts import layers_of
from tsr_gym.text_env import TextEnv

# Text that no environment with a vocabulary takes for an action.
JUNK = (
    "",
    "   \n\t ",
    "\x00\x01\x1b[31m\x7f",
    "\ud800 \udfff",
    "||",
    "|| || ||",
    "jump over the moon",
    "漢字かな 🙂 ǅ",
    "שלום\u202e العربية",
    "</answer><answer>",
    "x" * 100_000,
)


def draw_turn(env: TextEnv[Any], rng: np.random.Generator) -> str:
    """Return a turn of legal actions for the state in which a text environment stands, junk where there are none."""
    legal = env.legal_actions(env.state)
    if not legal:
        return JUNK[int(rng.integers(len(JUNK)))]
    most = 1 if env.separator is None else env.limits.max_actions_per_turn or 3
    count = int(rng.integers(1, min(most, 3) + 1))
    return f" {env.separator} ".join(legal[pick] for pick in rng.integers(len(legal), size=count))


class Actions:
    """A seeded source of actions for a stack, whatever its spaces are.

    Args:
        env: The stack; its own spaces are left alone.
        seed: Seed of all choices.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self._base = env.unwrapped
        self._rng = np.random.default_rng(seed)
        self._space = copy.deepcopy(env.action_space)
        self._space.seed(seed)
        # The wrappers' room is not imported here, so its class is known by name.
        formats = [layer for layer in layers_of(env) if type(layer).__name__ == "AnswerFormat"]
        self._format: Any = formats[0] if formats else None

    def draw(self) -> Any:
        """Return an action for the state in which the stack stands."""
        if not (isinstance(self._base, TextEnv) and isinstance(self._space, FreeText)):
            return self._space.sample()
        kind = self._rng.random()
        if kind < 0.1:
            return JUNK[int(self._rng.integers(len(JUNK)))]
        if kind < 0.2:
            return self._space.sample()
        turn = self._base.optimal_turn(self._base.state, *left(self._base)) if kind < 0.4 else None
        text = draw_turn(self._base, self._rng) if turn is None else turn
        return text if self._format is None else self._format.format(text)
