"""check_text_env: does a text environment keep the contract of `TextEnv`, and of Gymnasium?"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from tsr_gym.errors import CheckFailed
from tsr_gym.testing.actions import JUNK
from tsr_gym.testing.facts import name_of
from tsr_gym.testing.oracles import (
    legal_actions_are_legal,
    optimal_turns_are_valid,
    players_only_say_turns,
    success_bars_are_probabilities,
)
from tsr_gym.testing.protocol import (
    an_episode_begins_and_ends,
    any_text_is_an_action,
    gymnasium_is_satisfied,
    infos_are_complete,
    limits_cut_exactly,
    the_seed_decides,
)
from tsr_gym.testing.states import (
    keys_know_only_the_state,
    observing_is_pure,
    states_are_values,
)
from tsr_gym.testing.text_trial import TextTrial
from tsr_gym.text_env import TextEnv

RULES: tuple[Callable[[TextTrial], None], ...] = (
    any_text_is_an_action,
    infos_are_complete,
    states_are_values,
    observing_is_pure,
    the_seed_decides,
    keys_know_only_the_state,
    limits_cut_exactly,
    an_episode_begins_and_ends,
    legal_actions_are_legal,
    optimal_turns_are_valid,
    players_only_say_turns,
    success_bars_are_probabilities,
    gymnasium_is_satisfied,
)


def check_text_env(
    env: gym.Env[Any, Any],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 12,
    junk: Sequence[str] = JUNK,
) -> None:
    """Check by play that a text environment keeps the contract of `TextEnv`, and passes Gymnasium's own checks.

    The environment is played with; afterwards it stands anywhere.

    Args:
        env: A `TextEnv`, bare or wrapped.
        seeds: One episode is played per seed.
        steps: Most turns of an episode.
        junk: Texts that mean nothing to the environment. Pass your own where any text is an answer.

    Raises:
        CheckFailed: A rule is broken; `check` names it, and the message names the class or function.

    >>> import gymnasium as gym, tsr_gym
    >>> check_text_env(gym.make("tsr/FrozenLake-v0"), seeds=(0,))
    """
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        raise CheckFailed("text_env", f"wanted a tsr_gym.TextEnv, got a {name_of(base)}")
    trial = TextTrial(env, base, tuple(seeds), steps, tuple(junk))
    for rule in RULES:
        rule(trial)
