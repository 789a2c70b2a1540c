"""Rules about states as values: immutable, observed without side effects, and named by a key of their own."""

from operator import attrgetter
from typing import Any

import numpy as np

from tsr_gym.codec import decode, encode
from tsr_gym.errors import SnapshotError
from tsr_gym.testing.text_trial import TextTrial


def states_are_values(trial: TextTrial) -> None:
    """States hash, have canonical bytes, and hold nothing that can be changed in place."""
    for turn in trial.turns():
        state = turn.after.state
        if path := _mutable_part(state, "state"):
            trial.fail("immutable_state", f"{path}: states are NamedTuples or frozen dataclasses of immutable parts")
        try:
            twin = decode(encode(state))
        except SnapshotError as error:
            trial.fail("immutable_state", f"the state has no canonical bytes: {error}")
        try:
            same = twin == state and hash(twin) == hash(state)
        except (TypeError, ValueError) as error:
            trial.fail("immutable_state", f"the state cannot be compared or hashed ({error})")
        if not same:
            trial.fail("immutable_state", "a state that went through bytes is not equal to itself, or hashes otherwise")


def _mutable_part(value: Any, path: str) -> str | None:
    """Return the first part of a value that can be changed in place, in words."""
    if isinstance(value, list | dict | set | bytearray):
        return f"{path} is a {type(value).__name__}, which can be changed in place"
    if isinstance(value, np.ndarray):
        return f"{path} is an array that can be written to" if value.flags.writeable else None
    held = vars(type(value))
    params = held.get("__dataclass_params__")
    if params is not None and not params.frozen:
        return f"{path} is a {type(value).__name__}, a dataclass that is not frozen"
    names = held.get("_fields") or held.get("__dataclass_fields__") or ()
    parts = [(f".{name}", attrgetter(name)(value)) for name in names]
    if not names and isinstance(value, tuple):
        parts = [(f"[{index}]", item) for index, item in enumerate(value)]
    return next((found for name, part in parts if (found := _mutable_part(part, path + name))), None)


def observing_is_pure(trial: TextTrial) -> None:
    """`observe` depends on its argument alone, and `step` returns what it says."""
    seen = []
    for turn in trial.turns():
        before = encode(turn.after)
        if (again := trial.base.observe(turn.after.state)) != turn.observation:
            trial.fail("observe", f"observe(state) gives {again[:60]!r} where step() gave {turn.observation[:60]!r}")
        if encode(trial.base.episode) != before:
            trial.fail("observe", "observe(state) changed the state of the environment")
        seen.append(turn)
    for turn in reversed(seen):
        if trial.base.observe(turn.after.state) != turn.observation:
            trial.fail("observe", "observe(state) gives another text later: it depends on more than the state")


def keys_know_only_the_state(trial: TextTrial) -> None:
    """`state_key` gives bytes that depend on the state alone, and states with equal keys behave alike."""
    base, seen = trial.base, []
    for turn in trial.turns():
        key = base.state_key(turn.after.state)
        if not isinstance(key, bytes):
            trial.fail("state_key", f"state_key(state) returned a {type(key).__name__}: wanted bytes")
        seen.append((key, turn.after))
    base.reset(seed=trial.seeds[-1] + 1)
    for key, episode in seen:
        if base.state_key(decode(encode(episode.state))) != key:
            trial.fail("state_key", "equal states have other keys later: the key depends on more than the state")
    groups: dict[bytes, dict[bytes, Any]] = {}
    for key, episode in seen:
        if not episode.terminated:
            groups.setdefault(key, {})[encode(episode.state)] = episode.state
    for states in groups.values():
        _expect_alike(trial, list(states.values()))


def _expect_alike(trial: TextTrial, states: list[Any]) -> None:
    """Take each action in each of some states with one key, on equal dice, and compare what comes of it."""
    first, *others = states
    for other in others:
        for action in trial.base.legal_actions(first)[:8]:
            steps = [trial.base.transition(state, action, np.random.default_rng(5)) for state in (first, other)]
            ends = [(step.reward, step.terminated, trial.base.state_key(step.state)) for step in steps]
            if ends[0] != ends[1]:
                trial.fail(
                    "state_key", f"two states have the same key, but {action!r} leads elsewhere from each: {ends}"[:400]
                )
