"""Views of a node's snapshot: the picture that its environment draws, and the text that people read; torch-free.

A tree's file may name any environment, so only registered ones are made. Environments are foreign code here and may
raise any exception; the page then shows the text that the model read.
"""

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.env_pool import task_settings
from tsr_gym.agents.reports.view.read_files import SeenTree
from tsr_gym.errors import ConfigError, SnapshotError
from tsr_gym.keywords import parse_settings
from tsr_gym.registration import accepted, env_class, env_id, find_env
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore
from tsr_gym.text_env import TextEnv

# Returns the picture of a snapshot in base64 as a data URI; None without a picture.
Draw = Callable[[str], str | None]
MODE = "rgb_array"


def find_drawing(seen: SeenTree, run: Path | None) -> Draw | None:
    """Return a function that draws the nodes of a tree; None where its environment has no pictures or cannot be made.

    Args:
        seen: The tree.
        run: Folder of the run that grew it, whose configuration has the settings of the environment.
    """
    first = next((snapshot for snapshot in seen.snapshots if snapshot is not None), None)
    if first is None:
        return None
    for name, settings in _ways(seen, run):
        # Foreign code may raise any exception, see the module.
        try:
            if MODE not in _modes(name):
                continue
            env = gym.make(env_id(name), **accepted(name, settings), render_mode=MODE).unwrapped
            env.reset(seed=0)
            _drawn(env, first)
        except Exception:
            continue
        return lambda snapshot, env=env: _drawn_or_none(env, snapshot)  # type: ignore[misc]
    return None


def _ways(seen: SeenTree, run: Path | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield names and settings with which the tree's environment may have been made, the most reliable first."""
    try:
        if run is not None:
            config = TrainConfig.load(run, bound=False)
            own = parse_settings(config.task.env_set)
            yield config.env, task_settings(config.env, config.task.preset, config.task.train_split) | own
    except (OSError, ConfigError):
        pass
    name, rules = seen.tree.about.get("env"), seen.tree.about.get("rules")
    # gym.make would import a module that a file names, so only registered ids are made.
    if isinstance(name, str) and name in gym.registry:
        yield name, {key: _tupled(value) for key, value in rules.items()} if isinstance(rules, dict) else {}
        yield name, {}


def _modes(name: str) -> list[str]:
    """Return the render modes of an environment."""
    find_env(name)
    made: Any = gym.make(env_id(name))
    modes: list[str] = made.metadata.get("render_modes", [])
    made.close()
    return modes


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _drawn_or_none(env: gym.Env[Any, Any], snapshot: str) -> str | None:
    try:
        return _drawn(env, snapshot)
    except Exception:  # From a damaged snapshot, or from an environment that cannot draw this state.
        return None


def _drawn(env: gym.Env[Any, Any], snapshot: str) -> str:
    snap = Snapshot.from_bytes(base64.b64decode(snapshot, validate=True))
    # The last layer is the environment itself; its wrappers draw nothing.
    restore(env, Snapshot(snap.layers[-1:]))
    pixels: Any = env.render()
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[2] != 3:
        raise SnapshotError(f"wanted pixels [H, W, 3] of uint8 from render(), got a {type(pixels).__name__}")
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def png(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """Return pixels `[H, W, 3]` as the bytes of a PNG file (RFC 2083, truecolour, no filter)."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    parts = (
        (b"IHDR", pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = [pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


class Reading(NamedTuple):
    """The text of a node for people, and the buttons on it."""

    text: str
    buttons: tuple[str, ...]


# Returns the text of a snapshot in base64 for people; None where it cannot be restored.
Read = Callable[[str], Reading | None]


def find_reading(seen: SeenTree) -> Read | None:
    """Return a function that reads the nodes of a tree for people; None where the model reads the same text.

    It is also None where the environment or its settings are not known.
    """
    first = next((snapshot for snapshot in seen.snapshots if snapshot is not None), None)
    name, stack = seen.tree.about.get("env"), seen.tree.about.get("stack")
    if first is None or name not in gym.registry or not isinstance(stack, dict):
        return None
    # Foreign code may raise any exception, see the module.
    try:
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in stack["kwargs"].items()}
        cls = env_class(name)
        if cls is None or settings == (for_people := cls.people_settings(settings)):
            return None
        plays, shows = _text_env(name, settings), _text_env(name, for_people)
        plays.reset(seed=0)
        _read(plays, shows, first)
    except Exception:
        return None
    return lambda snapshot: _read_or_none(plays, shows, snapshot)


def _text_env(name: str, settings: dict[str, Any]) -> TextEnv[Any]:
    env = gym.make(name, **settings).unwrapped
    if not isinstance(env, TextEnv):
        raise ConfigError(f"wanted an environment of text, {name} is a {type(env).__name__}")
    return env


def _read(plays: TextEnv[Any], shows: TextEnv[Any], snapshot: str) -> Reading:
    snap = Snapshot.from_bytes(base64.b64decode(snapshot, validate=True))
    # One environment restores the state, the other one, with the settings for people, shows it.
    restore(plays, Snapshot(snap.layers[-1:]))
    return Reading(shows.observe(plays.state), shows.buttons(plays.state))


def _read_or_none(plays: TextEnv[Any], shows: TextEnv[Any], snapshot: str) -> Reading | None:
    try:
        return _read(plays, shows, snapshot)
    except Exception:  # From a damaged snapshot, or from an environment that cannot show this state.
        return None
