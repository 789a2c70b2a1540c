"""Teaching: how a world is taught to a small language model by imitation.

Players are functions of the unwrapped environment in its present state; they take no turn and change nothing in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from tsr_gym.state_env import left

# Returns the text of the next turn, in the form of `optimal_turn`, for an unwrapped environment in an episode.
Player = Callable[[Any, np.random.Generator], str]


def keep(env: Any) -> bool:
    """Return True: every episode is a demonstration."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """How a small language model is taught to play a world.

    Attributes:
        teacher_turn: The next turn of a good player that knows only what the agent was shown, so that it can be
            learned.
        poor_turn: The next turn of a poor player, always in valid form.
        accepts: Whether the episode that the environment has just ended is worth imitating.
        env_settings: Settings of the environment for a very small model; settings of the user win over them.
        history: The part of the episode in a prompt: the present state (``"markov"``) or all turns (``"full"``).
        max_tokens: Longest answer, in tokens of one word each.
        words: Every word of the world's texts, separated by blanks; None to collect symbols from demonstrations.
        symbols: Symbols that the texts may hold and the demonstrations need not, in a world of symbols.
        permutable: The `words` that may be exchanged for one another throughout an episode without changing its
            meaning.
        permute: Probability of such an exchange, per imitated episode.
        copying: Whether good play needs words copied from the prompt.
        learn: Settings of training for such a model, by the names of their flags.
        recipe: Settings of the recipe that makes such a model, where they differ from the defaults.
    """

    teacher_turn: Player
    poor_turn: Player
    accepts: Callable[[Any], bool] = keep
    env_settings: Mapping[str, Any] = field(default_factory=dict)
    history: Literal["markov", "full"] = "markov"
    max_tokens: int = 16
    words: tuple[str, ...] | None = None
    symbols: tuple[str, ...] = ()
    permutable: frozenset[str] = frozenset()
    permute: float = 0.0
    copying: bool = False
    learn: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


def oracle_turn(env: Any, rng: np.random.Generator) -> str:
    """Return the result of `optimal_turn`, or the first legal action if the task can no longer be solved."""
    turn = env.optimal_turn(env.state, *left(env))
    return str(turn or env.legal_actions(env.state)[0])


def random_turn(env: Any, rng: np.random.Generator, *, p_single: float = 0.0) -> str:
    """Return a turn of legal actions; the actions and their number are drawn uniformly.

    Args:
        env: The unwrapped environment.
        rng: The generator to draw from.
        p_single: Probability of a turn with a single action, also where the limits allow more.
    """
    names = env.legal_actions(env.state)
    several = env.separator is not None and rng.random() >= p_single
    most = (env.limits.max_actions_per_turn or 1) if several else 1
    picks = rng.integers(len(names), size=rng.integers(1, most + 1))
    return f" {env.separator} ".join(names[pick] for pick in picks)


def taught_by_oracle(**settings: Any) -> Teaching:
    """Return the teaching of a world whose observations show the whole state, so that its oracle can be imitated.

    Args:
        settings: `Teaching.env_settings`.
    """
    return Teaching(teacher_turn=oracle_turn, poor_turn=partial(random_turn, p_single=0.8), env_settings=settings)
