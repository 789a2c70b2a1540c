"""Rules about shared objects: what was handed out stays as it was, and writing into it changes nothing."""

from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from tsr_gym.codec import encode
from tsr_gym.errors import CheckFailed
from tsr_gym.foreign.differences import difference
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore
from tsr_gym.testing.facts import facts_of, returned
from tsr_gym.testing.recording import Recording, expect_replay, expect_standing, has_bytes, take
from tsr_gym.testing.trial import Trial


def what_was_handed_out_stays(trial: Trial) -> None:
    """Playing on changes no earlier snapshot; of a `StateEnv`, no earlier observation or info either."""
    for recording in trial.recordings:
        for turn in range(len(recording.snapshots)):
            _expect_same_snapshot(trial, recording, turn)
            if trial.own:
                _expect_same_results(trial, recording, turn)
        for turn, ((_, one), (_, other)) in enumerate(pairwise(recording.handed_out)):
            if trial.own and one is other:
                raise CheckFailed(
                    "aliasing",
                    f"{trial.name} returned one and the same info dictionary at turns {turn} and {turn + 1}: make a "
                    "new one on every call",
                )


def _expect_same_results(trial: Trial, recording: Recording, turn: int) -> None:
    again = {one.what: one for one in returned(trial.env, recording.handed_out[turn])}
    for one in recording.shots[turn].returned:
        other = again.get(one.what, one)
        if one.value != other.value:
            raise CheckFailed(
                "aliasing",
                f"{one.what} that {trial.name} returned at turn {turn} changed later, from {one.text[:60]} to "
                f"{other.text[:60]}: return a new object on every call",
            )


def _expect_same_snapshot(trial: Trial, recording: Recording, turn: int) -> None:
    snap = recording.snapshots[turn]
    if not has_bytes(snap):
        _expect_same_facts(trial, recording, turn)
        return
    if Snapshot(snap.layers).digest == snap.digest:
        return
    for old, new in zip(Snapshot.from_bytes(snap.to_bytes()).layers, snap.layers, strict=True):
        path = _changed_path(old.state, new.state, old.kind.rpartition(":")[2])
        if path is not None:
            raise CheckFailed(
                "aliasing",
                f"{path} in the snapshot of turn {turn} changed while {trial.name} played on: something is changed in "
                "place; make a new value instead (arrays: copy, then set flags.writeable = False)",
            )


def _expect_same_facts(trial: Trial, recording: Recording, turn: int) -> None:
    """Compare a snapshot that has no bytes with what it held when it was taken."""
    now = facts_of(trial.env.unwrapped, recording.snapshots[turn].layers)
    if found := difference(recording.shots[turn].standing, now):
        raise CheckFailed("aliasing", f"the snapshot of turn {turn} changed while {trial.name} played on: {found}")


def _changed_path(old: Any, new: Any, path: str) -> str | None:
    """Return the path to the first part that differs between two versions of a value, None where none does."""
    if encode((old,)) == encode((new,)):
        return None
    before, after = _parts(old), _parts(new)
    if list(before) == list(after):
        for name in after:
            if found := _changed_path(before[name], after[name], f"{path}.{name}"):
                return found
    return path


def _parts(value: Any) -> dict[Any, Any]:
    held = vars(type(value))
    names = held.get("_fields") or held.get("__dataclass_fields__") or ()
    if names:
        return {name: attrgetter(name)(value) for name in names}
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, list | tuple) else {}


def writing_into_results_is_harmless(trial: Trial) -> None:
    """A user who writes into returned observations and infos changes no snapshot, and no `StateEnv`."""
    recording = trial.recordings[0]
    story = f"{trial.name} after somebody wrote into what step() returned"
    if not trial.own:
        # What a foreign environment does itself when its own observation is written to is its author's business.
        _scribble(recording.handed_out)
        for turn in recording.points:
            restore(trial.env, recording.snapshots[turn])
            expect_replay("handed_out", trial.env, recording, turn, story)
        return
    restore(trial.env, recording.snapshots[0])
    for turn, action in enumerate(recording.actions, start=1):
        result = take(trial.env, action)
        _scribble(result)
        expect_standing("handed_out", trial.env, recording, turn, story)


def _scribble(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _scribble(item)
        value["tsr_gym.testing"] = "scribbled"
    elif isinstance(value, list | tuple):
        for item in value:
            _scribble(item)
    elif isinstance(value, np.ndarray) and value.flags.writeable and value.dtype.kind in "biuf":
        value[...] = value.dtype.type(1) - value
