"""Raters by name, as a configuration writes them."""

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose
from tsr_gym.tree import Rater

if TYPE_CHECKING:
    from tsr_gym.agents.policies.chat_policy import ChatPolicy


def choose_rater(text: str, *, chat: "ChatPolicy | None" = None) -> "partial[Any]":
    """Return what makes the rater that a text names, without making it; see `make_rater`.

    Raises:
        ConfigError: There is no such rater, or it does not take these keywords.
    """
    return choose(
        text, home="tsr_gym.agents.raters", what="rater", takes=0, offered={"chat": chat}, among=inspect.isclass
    )


def make_rater(text: str, *, chat: "ChatPolicy | None" = None) -> Rater:
    """Return the rater that a text names, such as ``"SelfConsistency()"``.

    Args:
        text: A class, or a function that makes a rater, see `tsr_gym.keywords.choose`; bare names are those of
            `tsr_gym.agents.raters`.
        chat: The model as a policy, given to raters that take an argument of this name.

    Raises:
        ConfigError: There is no such rater, it does not take these keywords, or it needs a model and there is none.
    """
    make = choose_rater(text, chat=chat)
    try:
        rater: Rater = make()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the rater {text!r} cannot be made: {error}") from error
    if not callable(rater):
        raise ConfigError(f"wanted a rater, {text!r} made a {type(rater).__name__}")
    return rater
