"""Teaching: what a world tells about itself to whoever makes a small language model that plays it, by imitation.

Players are functions of the unwrapped environment as it stands; they take no turn and change nothing in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from tsr_gym.state_env import left

# From the unwrapped environment, in the middle of an episode, to the text of its next turn, as `optimal_turn` gives it.
Player = Callable[[Any, np.random.Generator], str]


def keep(env: Any) -> bool:
    """Return True: every episode is a demonstration."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """How a small language model is taught to play a world.

    Attributes:
        teacher_turn: The next turn of somebody who plays well from what the agent was shown, so that it can be learned.
        poor_turn: The next turn of somebody who plays poorly, always in valid form.
        accepts: Whether the episode that the environment has just ended is worth imitating.
        env_settings: Settings with which the world shows itself to a very small model; those of a user win over them.
        history: How much of an episode the model is shown: the present state is all of it (``"markov"``), or not.
        max_tokens: Longest answer, in tokens of a word each.
        words: Every word of the world's texts, each between blanks; None to collect signs from demonstrations.
        permutable: Those of `words` that may be exchanged for one another throughout an episode, which stays true then.
        permute: Probability that they are, for each episode imitated.
        copying: Whether playing well takes copying words out of what was shown.
        learn: Settings of training that fit such a model, by the names of their flags.
        recipe: Settings of the recipe by which such a model is made, where they are not the usual ones.
    """

    teacher_turn: Player
    poor_turn: Player
    accepts: Callable[[Any], bool] = keep
    env_settings: Mapping[str, Any] = field(default_factory=dict)
    history: Literal["markov", "full"] = "markov"
    max_tokens: int = 16
    words: tuple[str, ...] | None = None
    permutable: frozenset[str] = frozenset()
    permute: float = 0.0
    copying: bool = False
    learn: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


def oracle_turn(env: Any, rng: np.random.Generator) -> str:
    """Return what `optimal_turn` says, or some legal action where nothing is best: the task can no longer be solved."""
    turn = env.optimal_turn(env.state, *left(env))
    return str(turn or env.legal_actions(env.state)[0])


def random_turn(env: Any, rng: np.random.Generator, *, p_single: float = 0.0) -> str:
    """Return a turn of legal actions drawn uniformly, and so is their number.

    Args:
        env: The unwrapped environment.
        rng: Where they are drawn from.
        p_single: Probability that the turn holds a single action, whatever it may hold.
    """
    names = env.legal_actions(env.state)
    several = env.separator is not None and rng.random() >= p_single
    most = (env.limits.max_actions_per_turn or 1) if several else 1
    picks = rng.integers(len(names), size=rng.integers(1, most + 1))
    return f" {env.separator} ".join(names[pick] for pick in picks)


def taught_by_oracle(**settings: Any) -> Teaching:
    """Return the teaching of a world whose state is in plain sight, so that its oracle's play can be learned.

    Args:
        settings: `Teaching.env_settings`.
    """
    return Teaching(teacher_turn=oracle_turn, poor_turn=partial(random_turn, p_single=0.8), env_settings=settings)
