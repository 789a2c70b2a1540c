"""Starts: the states in the middle of episodes at which groups of a run begin, a file for each kind.

A kind keeps moments in a bank, learns from how the groups went that began there, and draws the next start.
"""

from collections.abc import Callable
from typing import Any

from tsr_gym.agents.episodes.starts.fatal import Fatal
from tsr_gym.agents.episodes.starts.pivots import Pivots
from tsr_gym.agents.episodes.starts.start import Begun, Starts
from tsr_gym.agents.episodes.starts.states import States
from tsr_gym.agents.episodes.starts.suffixes import Suffixes
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose, no_such, parse_call

__all__ = ["Begun", "Fatal", "Pivots", "Starts", "States", "Suffixes", "choose_starts"]

# Kinds by the words that configurations have for them.
SHORT = {"states": "States", "suffixes": "Suffixes", "fatal": "Fatal", "pivots": "Pivots"}


def choose_starts(text: str) -> Starts:
    """Return the kind of starts that a text such as ``"suffixes(level=0.4)"`` names, with an empty bank.

    Args:
        text: One of `SHORT`, or ``package.module:Name``, with its numbers.

    Raises:
        ConfigError: There is no such kind, or it cannot have these numbers.
    """
    call = parse_call(text, what="kind of moments")
    if ":" not in call.name and call.name not in SHORT:
        raise no_such("kind of moments", call.name, list(SHORT))
    written = str(call._replace(name=SHORT.get(call.name, call.name)))
    make: Callable[[], Any] = choose(written, home=__name__, what="kind of moments", takes=0, trial=lambda made: made())
    found = make()
    if not isinstance(found, Starts):
        raise ConfigError(f"{text} makes a {type(found).__name__}: wanted what has the methods of {Starts.__module__}")
    return found
