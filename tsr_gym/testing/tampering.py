"""Rules about snapshots as values: their bytes, and those that belong to something else or are damaged."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.snapshots import Layer, Snapshot
from tsr_gym.stack import restore, snapshot
from tsr_gym.state_env import StateEnv, Step
from tsr_gym.testing.facts import name_of
from tsr_gym.testing.recording import expect_replay, expect_standing
from tsr_gym.testing.trial import Trial

NUM_SAMPLES = 24


class Stranger(StateEnv[int, np.int64, np.int64]):
    """The smallest environment there is, whose snapshots are foreign to every other."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> int:
        """Return 0."""
        return 0

    def transition(self, state: int, action: np.int64, rng: np.random.Generator) -> Step:
        """Return 1, where the episode ends."""
        return Step(1, 0.0, True, {})

    def observe(self, state: int) -> np.int64:
        """Return the state."""
        return np.int64(state)


def bytes_and_pickles_are_exact(trial: Trial) -> None:
    """A snapshot survives bytes and pickle, and is equal exactly to those of the same moment."""
    if not trial.has_bytes:
        return
    for recording in trial.recordings:
        for turn in recording.points:
            snap = recording.snapshots[turn]
            copies = [
                Snapshot.from_bytes(snap.to_bytes()),
                pickle.loads(pickle.dumps(snap)),
                copy.deepcopy(snap),
            ]
            for twin in copies:
                if (twin, hash(twin), twin.to_bytes()) != (snap, hash(snap), snap.to_bytes()):
                    raise CheckFailed("bytes", f"a snapshot of {trial.name} is not the same after a byte round trip")
            restore(trial.env, copies[0])
            story = f"{trial.name} restored to turn {turn} from bytes"
            expect_replay("bytes", trial.env, recording, turn, story)
    first = trial.recordings[0]
    # Only a StateEnv counts its turns: elsewhere a move that changes nothing may lead back to an equal snapshot.
    for turn, (one, other) in enumerate(zip(first.snapshots, first.snapshots[1:], strict=False)):
        if trial.own and one == other:
            raise CheckFailed("bytes", f"the snapshots of {trial.name} at turns {turn} and {turn + 1} are equal")


def damaged_snapshots_are_refused(trial: Trial) -> None:
    """Bytes that were cut or flipped raise SnapshotError and change nothing."""
    if not trial.has_bytes:
        return
    recording = trial.recordings[0]
    whole = recording.snapshots[0].to_bytes()
    rng = np.random.default_rng(0)
    restore(trial.env, recording.snapshots[0])
    for size in {0, 1, 8, 9, 24, 25, len(whole) - 1, *rng.integers(len(whole), size=NUM_SAMPLES).tolist()}:
        _expect_refusal(trial, f"the first {size} bytes", partial(Snapshot.from_bytes, whole[:size]))
    for place in rng.integers(len(whole), size=NUM_SAMPLES).tolist():
        flipped = whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1 :]
        _expect_refusal(trial, f"byte {place} flipped", partial(Snapshot.from_bytes, flipped))
    expect_standing("damaged", trial.env, recording, 0, f"{trial.name} after damaged snapshots were refused")


def foreign_snapshots_are_refused(trial: Trial) -> None:
    """Snapshots of another environment, stack or rules raise SnapshotError and change nothing."""
    recording = trial.recordings[0]
    layers = recording.snapshots[0].layers
    stranger = Stranger()
    stranger.reset(seed=0)
    foreign = {
        "another environment": snapshot(stranger).layers,
        "another environment under the same wrappers": (*layers[:-1], *snapshot(stranger).layers),
        "a stack with one layer more": (Layer("tsr_gym.testing:Nothing", None), *layers),
        "no layers": (),
    }
    if trial.own:
        inner = layers[-1]
        foreign["other rules"] = (*layers[:-1], inner._replace(state=inner.state._replace(rules=("other", "rules"))))
    if len(layers) > 1:
        missing = name_of(trial.env)
        foreign[f"the stack without {missing}"] = layers[1:]
        foreign["the bare environment"] = layers[-1:]
    restore(trial.env, recording.snapshots[-1])
    for what, other in foreign.items():
        _expect_refusal(trial, f"a snapshot of {what}", partial(Snapshot, other))
    turn = len(recording.actions)
    expect_standing("foreign", trial.env, recording, turn, f"{trial.name} after foreign snapshots were refused")


def _expect_refusal(trial: Trial, what: str, make: Callable[[], Snapshot]) -> None:
    try:
        restore(trial.env, make())
    except SnapshotError:
        return
    except Exception as error:
        raise CheckFailed("foreign", f"{trial.name} met {what} with {error!r}: wanted a SnapshotError") from error
    raise CheckFailed("foreign", f"{trial.name} accepted {what}: wanted a SnapshotError")
