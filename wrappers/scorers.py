"""Scorers by name: what one score is made of, written as a configuration writes it."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose
from tsr_gym.wrappers.score_wrapper import ScoreWrapper, state_of

HOME = "tsr_gym.wrappers"
Scorer = str | Callable[[gym.Env[Any, Any]], ScoreWrapper[Any]]


def choose_scorer(text: str) -> "partial[Any]":
    """Return the scorer that a text such as ``"SokobanScore(potential='estimate')"`` names, for an environment.

    Raises:
        ConfigError: There is no such scorer, or it does not take these keywords.
    """
    return choose(text, home=HOME, what="scorer", among=_is_scorer)


def known_scorers() -> dict[str, tuple[type[ScoreWrapper[Any]], str]]:
    """Return the scorers of this package by name, each with the world whose states it rates, ``"any"`` for all."""
    named = vars(import_module(HOME))
    found = {name: named[name] for name in named["__all__"] if _is_scorer(named[name])}
    states = {name: state_of(kind, ScoreWrapper) for name, kind in found.items()}
    return {
        name: (kind, "any" if (state := states[name]) is None else state.__module__.rpartition(".")[0])
        for name, kind in found.items()
    }


def _is_scorer(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, ScoreWrapper) and value is not ScoreWrapper


def make_scorer(scorer: Scorer, env: gym.Env[Any, Any]) -> ScoreWrapper[Any]:
    """Return a scorer around an environment.

    Args:
        scorer: A class or function that takes the environment, or the text of `choose_scorer`.
        env: What it wraps.

    Raises:
        ConfigError: There is no such scorer, it does not take these keywords, or what it makes is no `ScoreWrapper`.
    """
    make = choose_scorer(scorer) if isinstance(scorer, str) else scorer
    try:
        made = make(env)
    except TypeError as error:
        raise ConfigError(f"the scorer {scorer!r} cannot be made: {error}") from error
    if not isinstance(made, ScoreWrapper):
        raise ConfigError(f"wanted a scorer that makes a ScoreWrapper, {scorer!r} made a {type(made).__name__}")
    return made
