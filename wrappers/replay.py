"""Replay: every turn of a saved tree again, from the state before it, and where it first comes out differently."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.errors import ConfigError, InvalidTree, TsrGymError, shown
from tsr_gym.foreign.recorder import ReplayRecorder
from tsr_gym.node import Node, node_to_json
from tsr_gym.optional import importing_only, load
from tsr_gym.records import plain, to_json
from tsr_gym.registration import find_env, trusted_modules
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import NOISES, Stack
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Tree
from tsr_gym.wrappers.imagine import Imagination, ImaginedTurn, node_of

OURS = ("tsr_gym.wrappers.", "gymnasium.wrappers.")
ADVICE = "give --env package.module:Id, with the module that registers it, if you trust that module"
BY_HAND = "Make the same stack in Python and call tsr_gym.wrappers.replay.replay(tree, env)"
# Of a spec, what decides which wrappers Gymnasium puts around an environment by itself.
MADE_WITH = ("kwargs", "max_episode_steps", "order_enforce", "disable_env_checker")


def stack_facts(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the settings that make a stack again, as JSON's own types; None without an id or with object settings."""
    spec = env.spec
    if spec is None:
        return None
    recorder = f"{ReplayRecorder.__module__}:{ReplayRecorder.__qualname__}"
    wrappers = [
        {"entry_point": wrapper.entry_point, "kwargs": wrapper.kwargs}
        for wrapper in spec.additional_wrappers
        if wrapper.entry_point != recorder
    ]
    facts = {**{name: vars(spec)[name] for name in MADE_WITH}, "wrappers": wrappers}
    try:
        return dict(json.loads(json.dumps(facts, default=plain, allow_nan=False)))
    except (TypeError, ValueError):
        return None


def stack_of(tree: Tree, name: str | None = None) -> gym.Env[Any, Any]:
    """Return an environment like the one that a tree was grown in, wrappers included.

    Args:
        tree: As it was loaded.
        name: The environment, such as ``my.module:My/Env-v0`` where a module must be imported first; None for the id
            that the tree names. No other module of the user is imported because the tree names it.

    Raises:
        ConfigError: The tree does not record how its environment was made, or it cannot be made here.
    """
    facts, env_id = tree.about.get("stack"), tree.about.get("env")
    if not isinstance(facts, dict) or not isinstance(env_id, str):
        raise ConfigError(
            "the tree does not record how its environment was made: its version is older, or a setting is an object. "
            f"{BY_HAND}"
        )
    modules = trusted_modules(name)
    if name is None and env_id not in gym.registry:
        raise ConfigError(f"the environment {shown(env_id)} of the tree is not registered: {ADVICE}")
    spec = deepcopy(find_env(name or env_id))
    try:
        for field in MADE_WITH:
            vars(spec)[field] = facts[field]
        with importing_only(modules, ADVICE):
            env = gym.make(spec)
            for wrapper in facts["wrappers"]:
                env = _wrapped(env, wrapper["entry_point"], wrapper["kwargs"])
    except (gym.error.Error, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, TsrGymError):
            raise
        raise ConfigError(f"{env_id} cannot be made by the record of the tree ({error})") from error
    return env


def _wrapped(env: gym.Env[Any, Any], entry_point: str, kwargs: Mapping[str, Any] | None) -> gym.Env[Any, Any]:
    if not entry_point.startswith(OURS) or kwargs is None:
        raise ConfigError(
            f"wanted wrappers of tsr_gym and gymnasium with plain settings, the tree names {entry_point}. {BY_HAND}"
        )
    wrap: Any = load(entry_point)
    if not (isinstance(wrap, type) and issubclass(wrap, gym.Wrapper)):
        raise ConfigError(f"{entry_point} is no wrapper: the tree is damaged")
    wrapped: gym.Env[Any, Any] = wrap(env, **kwargs)
    return wrapped


# In the order in which people ask.
FIELDS = ("observation", "reward", "terminated", "truncated", "info", "score", "state_key", "snapshot")


class Difference(NamedTuple):
    """The first difference between a tree and its replay.

    Attributes:
        node: Number of the node.
        field: Of the node, such as ``"reward"``.
        saved: What the file has.
        found: What the replay brought.
    """

    node: int
    field: str
    saved: Any
    found: Any


class Replayed(NamedTuple):
    """Result of a replay.

    Attributes:
        nodes: Nodes that came out equal, before the first difference.
        difference: The first one; None where the whole tree is reproduced bit for bit.
    """

    nodes: int
    difference: Difference | None


def replay(tree: Tree, env: gym.Env[Any, Any], *, scores: bool = True) -> Replayed:
    """Play every turn of a tree again, and compare all that its node holds.

    A turn is played from the snapshot before it; in a tree without snapshots from what the replay itself has reached,
    beginning with ``reset(seed=tree.seed)``. Imagined turns are played on the dice that the tree's seed and their
    address give, played ones on the episode's own.

    Args:
        tree: As it was loaded.
        env: The stack below the tree, as `stack_of` makes it.
        scores: Whether scores are compared; not where a rater gave them, which is not asked again.

    Raises:
        SnapshotError: A snapshot is of another environment or of other rules.
        InvalidTree: The tree's record of its dice is impossible, or a turn is none of the environment's.
    """
    dice = _dice_of(tree)
    texts = [node.candidate.text for node in tree.nodes]
    if isinstance(env.unwrapped, TextEnv) and (wrong := [text for text in texts if not isinstance(text, str)]):
        raise InvalidTree(f"wanted turns as text, as {type(env.unwrapped).__name__} takes them, got {shown(wrong[0])}")
    observation, info = env.reset(seed=tree.seed)
    stack = Stack(env)
    fields = [field for field in FIELDS if scores or field != "score"]
    reached: list[Snapshot] = []
    for index, node in enumerate(tree.nodes):
        if node.parent is not None:
            nodes = [_node_after(tree, index, turn) for turn in _turns(tree, index, stack, reached[node.parent], dice)]
        elif node.snapshot is not None:
            stack.restore(node.snapshot)
            nodes = [replace(node, snapshot=stack.snapshot())]
        else:
            nodes = [replace(node, observation=observation, info=info, snapshot=stack.snapshot())]
        differences = [_difference(index, node, replayed, fields) for replayed in nodes]
        if None not in differences:
            return Replayed(index, differences[0])
        same = nodes[differences.index(None)].snapshot
        assert same is not None
        reached.append(same)
    return Replayed(len(tree.nodes), None)


def _dice_of(tree: Tree) -> dict[str, Any]:
    """Return the settings of a tree's imagined turns; a tree without a record has none.

    Raises:
        InvalidTree: No tree can be grown with these settings.
    """
    defaults = (("noise", "same"), ("repeats", 1), ("risk", "mean"))
    noise, repeats, risk = (tree.about.get(name, value) for name, value in defaults)
    if noise not in NOISES or type(repeats) is not int or not (risk == "mean" or type(risk) in (int, float)):
        raise InvalidTree(
            f"wanted noise of {NOISES}, a number of repeats and a risk, got {shown((noise, repeats, risk))}"
        )
    return {"noise": noise, "repeats": repeats, "risk": risk}


def _turns(tree: Tree, index: int, stack: Stack, before: Snapshot, dice: Any) -> Iterator[ImaginedTurn]:
    """Yield what a turn brings on each of the dice that it may have been played on, the likeliest first."""
    node, number = tree.nodes[index], tree.branch(index)[-1]
    assert node.parent is not None
    text = node.candidate.text
    action = np.asarray(text) if isinstance(text, list) else text
    address = tree.branch(node.parent)
    own = Imagination(stack, before, address, seed=tree.seed, noise="same", repeats=1, risk="mean")
    played = index in tree.played
    if played:
        yield own.turn(action, number)
    # Equal actions share a turn where that cannot change the outcome, and so the dice of the first of them.
    twins = [tree.branch(twin)[-1] for twin in tree.children(node.parent) if tree.nodes[twin].candidate.text == text]
    for tried in [number, *[twin for twin in twins if twin < number]] if dice["noise"] != "same" else []:
        yield Imagination(stack, before, address, seed=tree.seed, **dice).turn(action, tried)
    if not played:
        yield own.turn(action, number)


def _node_after(tree: Tree, index: int, turn: ImaginedTurn) -> Node:
    node = tree.nodes[index]
    assert node.parent is not None
    return node_of(tree, node.parent, node.candidate, turn)


def _difference(index: int, saved: Node, replayed: Node, fields: Sequence[str]) -> Difference | None:
    """Return the first field in which two nodes differ, as their JSON; None where they are equal."""
    ours, theirs = _plain(saved), _plain(replayed)
    for field in fields:
        if field == "snapshot" and saved.snapshot is None:
            continue
        if ours[field] != theirs[field]:
            return Difference(index, field, ours[field], theirs[field])
    return None


def _plain(node: Node) -> dict[str, Any]:
    digest = None if node.snapshot is None else node.snapshot.digest
    fields = json.loads(to_json(node_to_json(node, False)))
    return {**fields, "snapshot": digest}
