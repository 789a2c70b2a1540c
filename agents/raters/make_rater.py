"""Raters by name, as a configuration writes them."""

import inspect
from typing import Any

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call
from tsr_gym.tree import Rater


def make_rater(text: str, *, chat: Any = None) -> Rater:
    """Return the rater that a text names, such as ``"SelfConsistency()"``.

    Args:
        text: A class, or function that makes a rater, with literal keywords; bare names are those of
            `tsr_gym.agents.raters`. See `parse_call`.
        chat: The model as a policy (`ChatPolicy`), given to raters that take an argument of this name.

    Raises:
        ConfigError: There is no such rater, it does not take these keywords, or it needs a model and there is none.
    """
    make, settings = parse_call(text, home="tsr_gym.agents.raters")
    try:
        if "chat" in inspect.signature(make).parameters:
            settings["chat"] = chat
        rater: Rater = make(**settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the rater {text!r} cannot be made: {error}") from error
    if not callable(rater):
        raise ConfigError(f"wanted a rater, {text!r} made a {type(rater).__name__}")
    return rater
