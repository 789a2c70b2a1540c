"""Scorers by name: what one score is made of, written as a configuration writes it."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call
from tsr_gym.wrappers.score_wrapper import ScoreWrapper

Scorer = str | Callable[[gym.Env[Any, Any]], ScoreWrapper[Any]]


def make_scorer(scorer: Scorer, env: gym.Env[Any, Any]) -> ScoreWrapper[Any]:
    """Return a scorer for an environment, to be asked for scores and never to be stepped.

    Args:
        scorer: A class or function that takes the environment, or the text of `parse_call`, where bare names are those
            of `tsr_gym.wrappers`.
        env: What the whole score wraps.

    Raises:
        ConfigError: There is no such scorer, it does not take these keywords, or what it makes is no `ScoreWrapper`.
    """
    make, settings = parse_call(scorer, home="tsr_gym.wrappers") if isinstance(scorer, str) else (scorer, {})
    try:
        made = make(env, **settings)
    except TypeError as error:
        raise ConfigError(f"the scorer {scorer!r} cannot be made: {error}") from error
    if not isinstance(made, ScoreWrapper):
        raise ConfigError(f"wanted a scorer that makes a ScoreWrapper, {scorer!r} made a {type(made).__name__}")
    return made
