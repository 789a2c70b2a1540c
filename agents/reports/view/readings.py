"""Readings: what people read of a node whose model read a form of its own; torch-free.

The state is that of the node's snapshot, and the text is what the same environment shows in its own form.
"""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.agents.reports.view.read_tree import SeenTree
from tsr_gym.errors import ConfigError
from tsr_gym.people import clicks, for_people
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore
from tsr_gym.text_env import TextEnv


class Reading(NamedTuple):
    """What people read of a node, and what they can click there."""

    text: str
    buttons: tuple[str, ...]


# From a snapshot in base64 to what people read; None where nothing can be told.
Read = Callable[[str], Reading | None]


def find_reading(seen: SeenTree) -> Read | None:
    """Return what tells people of the nodes of a tree; None where they read what the model did, or nothing is known."""
    first = next((snapshot for snapshot in seen.snapshots if snapshot is not None), None)
    name, stack = seen.tree.about.get("env"), seen.tree.about.get("stack")
    # A file may name any module: only what is registered already is made.
    if first is None or name not in gym.registry or not isinstance(stack, dict):
        return None
    # Environments of anybody are made and asked here, and may raise anything; what the model read is shown then.
    try:
        settings = {key: tuple(one) if isinstance(one, list) else one for key, one in stack["kwargs"].items()}
        if settings == for_people(settings):
            return None
        plays, shows = _made(name, settings), _made(name, for_people(settings))
        plays.reset(seed=0)
        _read(plays, shows, first)
    except Exception:
        return None
    return lambda snapshot: _or_none(plays, shows, snapshot)


def _made(name: str, settings: dict[str, Any]) -> TextEnv[Any]:
    env = gym.make(name, **settings).unwrapped
    if not isinstance(env, TextEnv):
        raise ConfigError(f"wanted an environment of text, {name} is a {type(env).__name__}")
    return env


def _read(plays: TextEnv[Any], shows: TextEnv[Any], snapshot: str) -> Reading:
    snap = Snapshot.from_bytes(base64.b64decode(snapshot, validate=True))
    # Only the environment itself knows the state: its wrappers are left out.
    restore(plays, Snapshot(snap.layers[-1:]))
    return Reading(shows.observe(plays.state), clicks(shows, plays.state))


def _or_none(plays: TextEnv[Any], shows: TextEnv[Any], snapshot: str) -> Reading | None:
    try:
        return _read(plays, shows, snapshot)
    except Exception:  # As above: of a damaged snapshot, or of an environment that cannot show this state.
        return None
