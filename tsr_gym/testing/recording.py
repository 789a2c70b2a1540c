"""Recordings: the actions, results and snapshots of an episode, and the objects that may explain a difference."""

import copy
import functools
import inspect
import itertools
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.foreign.play import difference
from tsr_gym.snapshots import Snapshot
from tsr_gym.spaces import FreeText
from tsr_gym.state_env import left
from tsr_gym.testing.facts import (
    ATOMS,
    GENERATORS,
    Shot,
    fingerprint,
    is_code,
    is_own,
    layers_of,
    shown,
    standing,
    taken,
)
from tsr_gym.text_env import TextEnv

# Texts that are not actions of any environment with a vocabulary.
JUNK = (
    "",
    "   \n\t ",
    "\x00\x01\x1b[31m\x7f",
    "\ud800 \udfff",
    "||",
    "|| || ||",
    "jump over the moon",
    "漢字かな 🙂 ǅ",
    "שלום\u202e العربية",
    "</answer><answer>",
    "x" * 100_000,
)


def draw_turn(env: TextEnv[Any], rng: np.random.Generator) -> str:
    """Return a turn of legal actions for the present state of a text environment; junk if there are none."""
    legal = env.legal_actions(env.state)
    if not legal:
        return JUNK[int(rng.integers(len(JUNK)))]
    most = 1 if env.separator is None else env.limits.max_actions_per_turn or 3
    count = int(rng.integers(1, min(most, 3) + 1))
    return f" {env.separator} ".join(legal[pick] for pick in rng.integers(len(legal), size=count))


class Actions:
    """A seeded source of actions for a stack with any spaces.

    Args:
        env: The stack; the generators of its spaces are not used.
        seed: Seed of all choices.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self._base = env.unwrapped
        self._rng = np.random.default_rng(seed)
        self._space = copy.deepcopy(env.action_space)
        self._space.seed(seed)
        # The core does not import the wrappers, so the class is recognised by its name.
        formats = [layer for layer in layers_of(env) if type(layer).__name__ == "AnswerFormat"]
        self._format: Any = formats[0] if formats else None

    def draw(self) -> Any:
        """Return an action for the present state of the stack."""
        if not (isinstance(self._base, TextEnv) and isinstance(self._space, FreeText)):
            return self._space.sample()
        share = self._rng.random()
        if share < 0.1:
            return JUNK[int(self._rng.integers(len(JUNK)))]
        if share < 0.2:
            return self._space.sample()
        turn = self._base.optimal_turn(self._base.state, *left(self._base)) if share < 0.4 else None
        text = draw_turn(self._base, self._rng) if turn is None else turn
        return text if self._format is None else self._format.format(text)


MAX_VISITS = 100
MAX_ITEMS = 64
MAX_SHOWN = 8
# Gymnasium's bookkeeping, which does not depend on the episode, and the state that facts already compare.
_BOOKKEEPING = frozenset(
    {
        "env",
        "spec",
        "metadata",
        "action_space",
        "observation_space",
        "_action_space",
        "_observation_space",
        "_metadata",
        "_cached_spec",
        "_episode",
        "_saved_kwargs",
        "_np_random_seed",
    }
)
_FOREIGN = ("gymnasium.", "tsr_gym.")


class Place(NamedTuple):
    """An attribute or variable in which a stack can keep state."""

    name: str
    value: Any
    foreign: bool


Marks = dict[str, tuple[str, str, bool]]


def marks_of(env: gym.Env[Any, Any]) -> Marks:
    """Return fingerprint, short text and ownership of all attributes and variables of a stack."""
    return {
        place.name: (fingerprint(place.value, MAX_VISITS, MAX_ITEMS), _short(place.value), place.foreign)
        for place in _places(env)
    }


def changes(before: Marks, after: Marks) -> list[str]:
    """Return descriptions of the places that differ; those of Gymnasium and tsr-gym only if there are no others."""
    changed = [
        (after[name][2], f"{name} ({before[name][1]} then, {after[name][1]} now)")
        for name in before
        if name in after and before[name][0] != after[name][0]
    ]
    own = [words for foreign, words in changed if not foreign]
    return own or [words for _, words in changed]


def hidden_generators(env: gym.Env[Any, Any]) -> list[str]:
    """Return the generators in closures, module globals and class attributes, which no snapshot can reach."""
    return [
        place.name for place in (*_class_places(env), *_function_places(env)) if isinstance(place.value, GENERATORS)
    ]


def _places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for layer in layers_of(env):
        cls = type(layer)
        for name, value in vars(layer).items():
            if name not in _BOOKKEEPING:
                yield Place(f"{cls.__qualname__}.{name}", value, _is_foreign(cls))
    yield from _class_places(env)
    yield from _function_places(env)


def _class_places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for cls in _classes(env):
        for name, value in vars(cls).items():
            if not (name.startswith("__") or name in _BOOKKEEPING or is_code(value)):
                yield Place(f"{cls.__qualname__}.{name} (class attribute)", value, False)


def _function_places(env: gym.Env[Any, Any]) -> Iterator[Place]:
    for function in _functions(env):
        where = f"{function.__module__}.{function.__qualname__}"
        held = inspect.getclosurevars(function)
        for scope, names in (("closure variable", held.nonlocals), ("module global", held.globals)):
            for name, value in names.items():
                if not is_code(value):
                    yield Place(f"{scope} {name} of {where}", value, False)


def _functions(env: gym.Env[Any, Any]) -> Iterator[FunctionType]:
    """Yield the functions of a stack's classes and objects, and the functions of the same package that they use."""
    waiting: list[Any] = [value for cls in _classes(env) for value in vars(cls).values()]
    waiting += [value for layer in layers_of(env) for value in vars(layer).values() if callable(value)]
    seen: set[int] = set()
    while waiting:
        for function in _unfolded(waiting.pop()):
            if id(function.__code__) in seen or f"{function.__module__}.".startswith(_FOREIGN):
                continue
            seen.add(id(function.__code__))
            yield function
            # Functions of other packages are not followed: a stack cannot be blamed for a library.
            held = inspect.getclosurevars(function)
            package = function.__module__.partition(".")[0]
            waiting += [value for value in held.nonlocals.values() if callable(value)]
            waiting += [
                value
                for value in held.globals.values()
                if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == package
            ]


def _unfolded(value: Any) -> Iterator[FunctionType]:
    """Yield the Python functions inside a method, property, partial or decorated function."""
    if isinstance(value, staticmethod | classmethod | MethodType):
        value = value.__func__
    if isinstance(value, property):
        yield from (part for part in (value.fget, value.fset) if isinstance(part, FunctionType))
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _unfolded(part)
    elif callable(value) and not isinstance(value, type):
        value = inspect.unwrap(value)
        if isinstance(value, FunctionType):
            yield value


def _classes(env: gym.Env[Any, Any]) -> Iterator[type]:
    """Yield the classes of a stack that are neither Gymnasium's nor the core's."""
    seen = set()
    for layer in layers_of(env):
        for cls in type(layer).__mro__:
            if cls not in seen and not _is_foreign(cls):
                seen.add(cls)
                yield cls


def _is_foreign(cls: type) -> bool:
    return f"{cls.__module__}.".startswith((*_FOREIGN, "builtins.", "typing.", "abc."))


def _short(value: Any) -> str:
    if isinstance(value, (*ATOMS, itertools.count)) or _is_small(value):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    # The representation of a foreign object may be very long.
    size = f" of {len(value)}" if isinstance(value, tuple | list | dict | set | deque) else ""
    return f"a {type(value).__qualname__}{size}"


def _is_small(value: Any) -> bool:
    if not isinstance(value, tuple | list | dict | set) or len(value) > MAX_SHOWN:
        return False
    return all(isinstance(item, ATOMS) for item in (value.values() if isinstance(value, dict) else value))


class Recording(NamedTuple):
    """One episode; `shots`, `snapshots`, `marks` and `handed_out` begin with the reset, so they are one longer.

    Attributes:
        seed: Seed of the reset.
        actions: The actions.
        shots: The facts after every call.
        snapshots: The snapshots after every call.
        marks: Marks of the stack's objects after every call.
        handed_out: The observation and info objects that were returned, not copies.
    """

    seed: int
    actions: list[Any]
    shots: list[Shot]
    snapshots: list[Snapshot]
    marks: list[Marks]
    handed_out: list[tuple[Any, Any]]

    @property
    def points(self) -> list[int]:
        """The turns to restore: the first, the middle and the last but one."""
        turns = len(self.actions)
        return sorted({0, turns // 2, max(turns - 1, 0)})


def finished(env: gym.Env[Any, Any], result: tuple[Any, ...]) -> bool:
    """Return whether an episode has ended for good."""
    resets_itself = any(isinstance(layer, gym.wrappers.Autoreset) for layer in layers_of(env))
    return len(result) == 5 and bool(result[2] or result[3]) and not resets_itself


def record(env: gym.Env[Any, Any], seed: int, steps: int) -> Recording:
    """Play an episode of at most `steps` turns and return its record."""
    recording = Recording(seed, [], [], [], [], [])
    result: tuple[Any, ...] = env.reset(seed=seed)
    _note(recording, env, result)
    actions = Actions(env, seed)
    while len(recording.actions) < steps and not finished(env, result):
        recording.actions.append(actions.draw())
        result = take(env, recording.actions[-1])
        _note(recording, env, result)
    return recording


def take(env: gym.Env[Any, Any], action: Any) -> tuple[Any, ...]:
    """Take a copy of a recorded action, because some environments write into the action object."""
    return env.step(copy.deepcopy(action))


def drive(env: gym.Env[Any, Any], recording: Recording) -> None:
    """Play a recorded episode again without comparing it."""
    env.reset(seed=recording.seed)
    for action in recording.actions:
        if finished(env, take(env, action)):
            return


def wander(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """Play an episode of at most `steps` turns without recording it."""
    result: tuple[Any, ...] = env.reset(seed=seed)
    actions = Actions(env, seed)
    for _ in range(steps):
        if finished(env, result):
            return
        result = take(env, actions.draw())


def _note(recording: Recording, env: gym.Env[Any, Any], result: tuple[Any, ...]) -> None:
    snap = taken(env)
    # A snapshot computes its bytes on the first request. Request them now, before anything can change its parts.
    has_bytes(snap)
    recording.shots.append(shown(env, result))
    recording.snapshots.append(snap)
    recording.marks.append(marks_of(env))
    # The objects themselves, so that a later change of them can be seen.
    recording.handed_out.append((result[0], result[-1]))


def has_bytes(snap: Snapshot) -> bool:
    """Return whether a snapshot has a byte form; snapshots of foreign environments may have none."""
    try:
        snap.to_bytes()
    except SnapshotError:
        return False
    return True


def expect_standing(check: str, env: gym.Env[Any, Any], recording: Recording, turn: int, story: str) -> None:
    """Raise CheckFailed unless the state of a stack is the recorded one after `turn` turns."""
    if text := difference(recording.shots[turn].standing, standing(env)):
        raise CheckFailed(check, f"{story}, turn {turn}: {text}{_clue(recording, turn, marks_of(env))}")


def expect_replay(check: str, env: gym.Env[Any, Any], recording: Recording, turn: int, story: str) -> None:
    """Continue a recorded episode from a turn, and raise CheckFailed at the first difference."""
    expect_standing(check, env, recording, turn, story)
    here = marks_of(env)
    for number, shot in enumerate(shots_from(env, recording.actions[turn:], check, story), start=turn + 1):
        if text := difference(recording.shots[number].all, shot.all):
            raise CheckFailed(check, f"{story}, turn {number}: {text}{_clue(recording, turn, here)}")


def expect_episode(check: str, env: gym.Env[Any, Any], recording: Recording, story: str) -> None:
    """Reset to a recorded seed, play the episode again, and raise CheckFailed at the first difference.

    A foreign environment may keep unused data of earlier episodes, so only its results are compared.
    """
    result: tuple[Any, ...] = env.reset(seed=recording.seed)
    here = marks_of(env)
    shots = itertools.chain([shown(env, result)], shots_from(env, recording.actions, check, story))
    for number, shot in enumerate(shots):
        wanted = recording.shots[number]
        text = difference(wanted.all, shot.all) if is_own(env) else difference(wanted.returned, shot.returned)
        if text:
            raise CheckFailed(check, f"{story}, turn {number}: {text}{_clue(recording, 0, here)}")


def shots_from(env: gym.Env[Any, Any], actions: list[Any], check: str, story: str) -> Iterator[Shot]:
    """Take actions and yield the facts; an exception that the recorded episode did not raise is a failure."""
    for action in actions:
        try:
            result = take(env, action)
        except Exception as error:
            raise CheckFailed(check, f"{story}: step() raised {error!r}, which it did not the first time") from error
        yield shown(env, result)


def _clue(recording: Recording, turn: int, here: Marks) -> str:
    held = changes(recording.marks[turn], here)
    if not held:
        return ". No attribute tells why: look for generators, caches and counters outside the state"
    return f". Held outside the snapshot: {'; '.join(held)}. Put it into the state, or into wrapper_state()"
