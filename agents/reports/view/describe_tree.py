"""Describe a tree for the viewer: its shape as columns, one node in full, and the views of a snapshot; torch-free.

A node has an outcome (how its episode stands), a fate (what the search did with it), a reason for the fate, and a
value (the mean return of the episodes below it). A tree's file may name any environment, so only registered ones are
made. Environments are foreign code here and may raise any exception; the page then shows the text that the model read.
"""

import base64
import json
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from struct import pack
from typing import Any, Literal, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.env_pool import task_settings
from tsr_gym.agents.episodes.trajectory import NAME, learned_from
from tsr_gym.agents.reports.view.read_files import SeenTree, is_finite, tree_header
from tsr_gym.errors import ConfigError, SnapshotError, shown
from tsr_gym.files import read_unzipped
from tsr_gym.keywords import parse_settings
from tsr_gym.node import Node
from tsr_gym.registration import accepted, env_class, find_env
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import DAMAGE, Tree

# Returns the picture of a snapshot in base64 as a data URI; None without a picture.
Draw = Callable[[str], str | None]
ResultT = TypeVar("ResultT")
MODE = "rgb_array"
ADVICE = "start tsr view with --env package.module:Id if you trust that module"


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
            env = gym.make(find_env(name), **accepted(name, settings), render_mode=MODE).unwrapped
            env.reset(seed=0)
            _drawn(env, first)
        except Exception:
            continue
        return _or_none(partial(_drawn, env))
    return None


def _or_none(view: Callable[[str], ResultT]) -> Callable[[str], ResultT | None]:
    """Return a view that is None for a damaged snapshot, and where the environment cannot show the state."""

    def viewed(snapshot: str) -> ResultT | None:
        try:
            return view(snapshot)
        except Exception:  # Foreign code may raise any exception, see the module.
            return None

    return viewed


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
    made: Any = gym.make(find_env(name))
    modes: list[str] = made.metadata.get("render_modes", [])
    made.close()
    return modes


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _put(env: gym.Env[Any, Any], snapshot: str) -> None:
    """Restore an environment without its wrappers: the last layer of a snapshot is the environment itself."""
    snap = Snapshot.from_bytes(base64.b64decode(snapshot, validate=True))
    restore(env, Snapshot(snap.layers[-1:]))


def _drawn(env: gym.Env[Any, Any], snapshot: str) -> str:
    _put(env, snapshot)
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
    if first is None or not isinstance(name, str) or name not in gym.registry or not isinstance(stack, dict):
        return None
    # Foreign code may raise any exception, see the module.
    try:
        settings = {key: _tupled(value) for key, value in stack["kwargs"].items()}
        cls = env_class(name)
        if cls is None or settings == (for_people := cls.people_settings(settings)):
            return None
        plays, shows = _text_env(name, settings), _text_env(name, for_people)
        plays.reset(seed=0)
        _read(plays, shows, first)
    except Exception:
        return None
    return _or_none(partial(_read, plays, shows))


def _text_env(name: str, settings: dict[str, Any]) -> TextEnv[Any]:
    env = gym.make(name, **settings).unwrapped
    if not isinstance(env, TextEnv):
        raise ConfigError(f"wanted an environment of text, {name} is a {type(env).__name__}")
    return env


def _read(plays: TextEnv[Any], shows: TextEnv[Any], snapshot: str) -> Reading:
    # One environment restores the state, the other one, with the settings for people, shows it.
    _put(plays, snapshot)
    return Reading(shows.observe(plays.state), shows.buttons(plays.state))


Outcome = Literal["solved", "failed", "cut", "dead end", "open"]
Fate = Literal["kept", "played", "expanded", "ended", "pruned"]


def outcome_of(node: Node) -> Outcome:
    """Return the state of the episode at a node; ``cut`` means that a limit ended it."""
    if node.terminated:
        return "solved" if node.solved else "failed"
    if node.truncated:
        return "cut"
    return "dead end" if node.info.get("dead_end") else "open"


def fates(tree: Tree) -> list[Fate]:
    """Return what the search did with every node.

    ``kept``: on a path that it chose; ``played``: of the episode that was really played; ``expanded``: continued, but
    on no path that it chose; ``ended``: the episode ended there; ``pruned``: not continued.
    """
    kept = {node for end in tree.chosen for node in tree.path(end)}
    played = set(tree.played) if len(tree.played) > 1 else set()

    def fate(index: int) -> Fate:
        if index in kept:
            return "kept"
        if index in played:
            return "played"
        if tree.children(index):
            return "expanded"
        return "ended" if tree.nodes[index].done else "pruned"

    return [fate(index) for index in range(len(tree.nodes))]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranking of the nodes of one depth by their merit.

    Attributes:
        merits: Negated merits, so that they rise from the best to the worst, for bisection.
        expanded: Number of nodes that the search continued from.
    """

    merits: tuple[float, ...]
    expanded: int

    def words(self, merit: float) -> str:
        """Return the rank of a merit as words."""
        first, last = (cut(self.merits, -round(merit, 9)) for cut in (bisect_left, bisect_right))
        shared = " (shared)" if last - first > 1 else ""
        return f"rank {first + 1}{shared} of {len(self.merits)} at its depth"


def ranks(tree: Tree) -> dict[int, Ranks]:
    """Return the ranks of every depth."""
    depths: dict[int, list[int]] = {}
    for index, node in enumerate(tree.nodes):
        depths.setdefault(node.depth, []).append(index)
    return {
        depth: Ranks(
            tuple(sorted(-round(tree.merit(index), 9) for index in indices)),
            sum(1 for index in indices if tree.children(index)),
        )
        for depth, indices in depths.items()
    }


def reason(tree: Tree, index: int, fate: Fate, by_depth: dict[int, Ranks]) -> str:
    """Return the reason for a node's fate as a sentence, from facts of the tree alone."""
    node = tree.nodes[index]
    rank = by_depth[node.depth]
    ranked = f"merit {tree.merit(index):.3g}, {rank.words(tree.merit(index))}"
    if fate == "kept":
        places = [place for place, end in enumerate(tree.chosen, start=1) if index in tree.path(end)]
        return f"on the path that the search chose ({_nth(places)} of {len(tree.chosen)}); {ranked}"
    if fate == "played":
        return "of the episode that was played"
    if fate == "expanded":
        chose = "chose no path through it" if tree.chosen else "chose no path"
        return f"the search continued from here and {chose}; {ranked}"
    if fate == "ended":
        return f"the episode ended here; {ranked}"
    if node.info.get("dead_end"):
        return f"a dead end: {node.info['dead_end']}"
    first = tree.twins(index, turns=False)[0]
    twin = f"; the same state as node {first}" if first != index else ""
    return f"not continued: {ranked}; the search continued from {rank.expanded} there{twin}"


def _nth(places: Sequence[int]) -> str:
    return ", ".join(map(str, places)) if len(places) <= 4 else f"{places[0]} to {places[-1]}, {len(places)} paths"


def values(tree: Tree) -> list[float | None]:
    """Return the value of every node: the mean over its children of reward plus value, 0 where the episode ends.

    ``V(n) = mean over children c of r(c) + V(c)``, over the children with a known value; None where no episode below a
    node has ended. Every child has the same weight, independent of the size of the tree below it.
    """
    worth: list[float | None] = [None] * len(tree.nodes)
    for index in range(len(tree.nodes) - 1, -1, -1):
        node = tree.nodes[index]
        if node.done:
            worth[index] = 0.0
            continue
        below = [(tree.nodes[child].reward, worth[child]) for child in tree.children(index)]
        returns = [reward + value for reward, value in below if value is not None]
        worth[index] = fmean(returns) if returns else None
    return worth


def gains(tree: Tree, worth: Sequence[float | None]) -> list[float | None]:
    """Return the gain of the turn to every node over its siblings: ``r(n) + V(n) - V(parent)``.

    None at the root, and where a value is not known.
    """
    differences: list[float | None] = []
    for node, value in zip(tree.nodes, worth, strict=True):
        before = None if node.parent is None else worth[node.parent]
        differences.append(None if value is None or before is None else node.reward + value - before)
    return differences


MAX_LABEL = 64
# Facts of a turn that the page shows elsewhere.
_SHOWN_ELSEWHERE = {"executed", "available_actions"}
Spell = Callable[[Sequence[int]], list[str]]


def summarise_tree(path: Path, within: Path | None = None) -> dict[str, Any]:
    """Return a summary of the tree in a file without building it: nodes, ends by outcome, the best return.

    Only whole lines count, so a damaged file has a summary of its readable part.

    Args:
        path: The file.
        within: See `read_regular`.

    Raises:
        InvalidTree: Its header cannot be read.
        OSError: The file cannot be read, or a link leaves the folder.
    """
    content, damage = read_unzipped(path, within=within)
    first, *lines = content.splitlines() or [b""]
    header = tree_header(first, path)
    returns: list[float] = []
    ends = {"solved": 0, "failed": 0, "cut": 0}
    best = None
    for line in lines:
        try:
            node = json.loads(line)
            parent, done = node["parent"], node["terminated"] or node["truncated"]
            returns.append(node["reward"] + (0.0 if parent is None else returns[parent]))
            if done:
                solved = node["terminated"] and bool(node["info"].get("success"))
                ends["solved" if solved else "failed" if node["terminated"] else "cut"] += 1
                best = returns[-1] if best is None else max(best, returns[-1])
        except DAMAGE:
            break
    outcome = next((name for name, count in ends.items() if count), "open")
    whole = not damage and header.get("nodes") == len(returns)
    return {"nodes": len(returns), "outcome": outcome, "ends": ends, "best": number(best), "whole": whole}


def describe_tree(seen: SeenTree) -> dict[str, Any]:
    """Return the shape of a tree as columns, one entry per node, in JSON's types.

    The seed is text, because it can exceed JavaScript's integers.
    """
    tree = seen.tree
    worth = values(tree)
    indices = range(len(tree.nodes))
    fate = fates(tree)
    learned = learned_from(tree)
    return {
        "seed": str(tree.seed),
        "about": {name: as_text(value) for name, value in tree.about.items() if name != NAME},
        "estimator": learned.estimator if learned.of else None,
        "score_of": tree.score_of,
        "note": "; ".join(filter(None, (seen.note, _missing_env(seen)))),
        "chosen": list(tree.chosen),
        "played": list(tree.played) if len(tree.played) > 1 else [],
        "parent": [node.parent for node in tree.nodes],
        "label": ["start", *map(label_of, tree.nodes[1:])],
        "reward": [number(node.reward) for node in tree.nodes],
        "score": [number(node.score) for node in tree.nodes],
        "merit": [number(tree.merit(index)) for index in indices],
        "return": [number(tree.total(index, "reward")) for index in indices],
        "value": [number(value) for value in worth],
        "gain": [number(value) for value in gains(tree, worth)],
        "advantage": [number(fmean(learned.of[index])) if learned.of.get(index) else None for index in indices],
        "outcome": [outcome_of(node) for node in tree.nodes],
        "fate": fate,
    }


def _missing_env(seen: SeenTree) -> str:
    """Return a note where states cannot be drawn because nothing registered their environment; else ""."""
    name = seen.tree.about.get("env")
    drawable = not isinstance(name, str) or name in gym.registry or not any(seen.snapshots)
    return "" if drawable else f"states are not drawn, because {shown(name)} is not registered: {ADVICE}"


def describe_node(
    seen: SeenTree, index: int, *, spell: Spell | None, picture: str | None, reading: Reading | None = None
) -> dict[str, Any]:
    """Return all that a page shows of one node, in JSON's types.

    Args:
        seen: The tree.
        index: The node.
        spell: Returns the text of each token id; None where no tokenizer is known.
        picture: The environment's picture of the state, as a data URI.
        reading: The text for people, where the model reads another form.

    Raises:
        IndexError: There is no such node.
    """
    tree = seen.tree
    node = tree.node(index)
    candidate, actions = node.candidate, node.info.get("available_actions")
    clickables = actions.get("clickables") if isinstance(actions, Mapping) else ()
    return {
        "node": index,
        "why": _why(tree, index),
        "observation": node.observation if isinstance(node.observation, str) else as_text(node.observation),
        "picture": picture,
        "page": None if reading is None else reading.text,
        "answer": candidate.text if isinstance(candidate.text, str) else as_text(candidate.text),
        "prompt": "".join(spell(candidate.prompt_ids)) if spell and candidate.prompt_ids else None,
        "num_prompt": len(candidate.prompt_ids),
        "tokens": spell(candidate.token_ids) if spell else [f"⟨{token}⟩" for token in candidate.token_ids],
        "logprobs": [number(logprob) for logprob in candidate.logprobs],
        "advantages": [number(advantage) for advantage in learned_from(tree).of.get(index, ())],
        "answers": _texts(node.info.get("golden_answers")),
        "buttons": _texts(clickables) if reading is None else list(reading.buttons),
        "info": {name: as_text(value) for name, value in node.info.items() if name not in _SHOWN_ELSEWHERE},
    }


def _why(tree: Tree, index: int) -> str:
    if tree.nodes[index].parent is None:
        return "the root of the search"
    depths: dict[int, Ranks] = ranks(tree)
    return reason(tree, index, fates(tree)[index], depths)


def number(value: float | None) -> float | None:
    """Return a number with the digits that a page shows; None for a value that JSON cannot hold."""
    return round(value, 6) if isinstance(value, (int, float)) and is_finite(value) else None


def as_text(value: object) -> str:
    """Return a value of a file as text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return repr(value)


def label_of(node: Node) -> str:
    """Return the beginning of a turn's executed actions, or of its answer where none was executed, on one line."""
    actions = " || ".join(_texts(node.info.get("executed"))) or as_text(node.candidate.text)
    text = " ".join(actions.split())
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, (list, tuple)) else []
