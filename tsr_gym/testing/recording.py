"""Episodes on record: what was done, what was shown, and the snapshot after every turn."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.foreign.differences import difference
from tsr_gym.snapshots import Snapshot
from tsr_gym.testing.actions import Actions
from tsr_gym.testing.facts import Shot, is_own, layers_of, shown, standing, taken
from tsr_gym.testing.suspects import Marks, changes, marks_of


class Recording(NamedTuple):
    """One episode; `shots`, `snapshots`, `marks` and `handed_out` begin with the reset, so they are one longer.

    Attributes:
        seed: What the episode was reset with.
        actions: What was done.
        shots: What was shown.
        snapshots: Where the stack stood.
        marks: What the stack's objects held.
        handed_out: The very observation and info objects that were returned.
    """

    seed: int
    actions: list[Any]
    shots: list[Shot]
    snapshots: list[Snapshot]
    marks: list[Marks]
    handed_out: list[tuple[Any, Any]]

    @property
    def points(self) -> list[int]:
        """Turns to restore at: the start, the middle and the last but one."""
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
    """Take a recorded action; some environments write into the action that they are given."""
    return env.step(copy.deepcopy(action))


def drive(env: gym.Env[Any, Any], recording: Recording) -> None:
    """Play a recorded episode again without looking."""
    env.reset(seed=recording.seed)
    for action in recording.actions:
        if finished(env, take(env, action)):
            return


def wander(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """Play an episode of at most `steps` turns that nobody wants to see again."""
    result: tuple[Any, ...] = env.reset(seed=seed)
    actions = Actions(env, seed)
    for _ in range(steps):
        if finished(env, result):
            return
        result = take(env, actions.draw())


def _note(recording: Recording, env: gym.Env[Any, Any], result: tuple[Any, ...]) -> None:
    snap = taken(env)
    # A snapshot makes its bytes when they are first asked for; only now are they sure to be those of this turn.
    has_bytes(snap)
    recording.shots.append(shown(env, result))
    recording.snapshots.append(snap)
    recording.marks.append(marks_of(env))
    recording.handed_out.append((result[0], result[-1]))


def has_bytes(snap: Snapshot) -> bool:
    """Return whether a snapshot has a byte form; those of foreign environments need not."""
    try:
        snap.to_bytes()
    except SnapshotError:
        return False
    return True


def expect_standing(check: str, env: gym.Env[Any, Any], recording: Recording, turn: int, story: str) -> None:
    """Raise CheckFailed unless a stack stands where it stood on record after a number of turns."""
    if found := difference(recording.shots[turn].standing, standing(env)):
        raise CheckFailed(check, f"{story}, turn {turn}: {found}{_clue(recording, turn, marks_of(env))}")


def expect_replay(check: str, env: gym.Env[Any, Any], recording: Recording, turn: int, story: str) -> None:
    """Play a recorded episode on from a turn, and raise CheckFailed at the first difference."""
    expect_standing(check, env, recording, turn, story)
    here = marks_of(env)
    for number, shot in enumerate(shots_from(env, recording.actions[turn:], check, story), start=turn + 1):
        if found := difference(recording.shots[number].all, shot.all):
            raise CheckFailed(check, f"{story}, turn {number}: {found}{_clue(recording, turn, here)}")


def expect_episode(check: str, env: gym.Env[Any, Any], recording: Recording, story: str) -> None:
    """Reset to a recorded seed, play the episode again, and raise CheckFailed at the first difference.

    What a foreign environment keeps of earlier episodes without using it is no difference: only what it returns counts.
    """
    result: tuple[Any, ...] = env.reset(seed=recording.seed)
    here = marks_of(env)
    shots = itertools.chain([shown(env, result)], shots_from(env, recording.actions, check, story))
    for number, shot in enumerate(shots):
        wanted = recording.shots[number]
        found = difference(wanted.all, shot.all) if is_own(env) else difference(wanted.returned, shot.returned)
        if found:
            raise CheckFailed(check, f"{story}, turn {number}: {found}{_clue(recording, 0, here)}")


def shots_from(env: gym.Env[Any, Any], actions: list[Any], check: str, story: str) -> Iterator[Shot]:
    """Take actions and yield what they show; an error that the recorded episode did not raise is a failure."""
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
