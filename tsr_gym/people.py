"""People: what they are shown of a state whose model reads it in a form of its own."""

import re
from collections.abc import Mapping
from typing import Any

from tsr_gym.text_env import TextEnv

# Settings of environments that change the form in which states are shown, and nothing else.
FORMS = frozenset({"obs_type", "observation_mode"})
_CLICK = re.compile(r"click\[(.*)\]")


def for_people(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an environment that shows the same states in the form that people read.

    >>> for_people({"observation_mode": "compact", "max_turns": 9})
    {'max_turns': 9}
    """
    return {name: value for name, value in settings.items() if name not in FORMS}


def clicks(env: TextEnv[Any], state: Any) -> tuple[str, ...]:
    """Return what can be clicked in a state, in small letters; nothing where actions are no clicks."""
    found = (_CLICK.fullmatch(action) for action in env.legal_actions(state))
    return tuple(one[1].lower() for one in found if one)
