"""The recorder never makes a call fail: what is put on record, and what leaves a gap."""

import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.plays import play
from tests.tsr_gym.foreign.test_replayed import ACTIONS, recorded
from tsr_gym import Snapshot, SnapshotError, env_support, restore, snapshot


class Handed:
    """Memory of another library that numpy may look into."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


class Unknowable:
    """An action that nobody can copy."""

    def __del__(self):
        pass

    def __int__(self):
        return 1


def test_an_action_in_memory_of_others_is_on_record_as_it_was():
    class TakesTurns(worlds.Locked):
        def step(self, action):
            return super().step(action["turn"][0])

    env = recorded(TakesTurns)
    values = np.array([2, 1])
    action = np.asarray(Handed(values))
    assert type(action.base).__name__ == "Handed"
    assert len(env.step({"turn": action[:1], "again": action[:1]})) == 5
    snap = snapshot(env)
    went_on = play(env, [{"turn": [1]}])
    values[:] = 0
    restore(env, snap)
    assert play(env, [{"turn": [1]}]) == went_on


def test_an_action_of_torch_is_given_to_the_environment_as_such_again():
    torch = pytest.importorskip("torch")
    given = []

    class Takes(worlds.Locked):
        def step(self, action):
            given.append(action)
            return super().step(action[0])

    env = recorded(Takes)
    action = torch.tensor([2, 0])
    env.step(action)
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    position = env.unwrapped.position
    action[0] = 0
    restore(env, snap)
    assert env.unwrapped.position == position
    assert given[-1].dtype == torch.int64
    assert given[-1].tolist() == [2, 0]


def test_an_action_that_cannot_be_recorded_is_taken_and_ends_the_support_of_its_episode():
    env = recorded(worlds.Locked)
    before = snapshot(env)
    assert len(env.step(Unknowable())) == 5
    env.step(1)
    why = "the action of Locked cannot be put on record: a Unknowable frees something"
    assert env_support(env) == ("none", env_support(env).reason)
    assert why in env_support(env).reason
    with pytest.raises(SnapshotError, match=why):
        snapshot(env)
    restore(env, before)
    assert snapshot(env) == before
    env.step(Unknowable())
    env.reset(seed=1, options={"offset": 3, "other": Unknowable()})
    assert "the options of Locked" in env_support(env).reason
    env.reset(seed=1)
    assert env_support(env).level == "replay"


class Puzzles(worlds.Locked):
    """Returns an info that raises when it is looked at."""

    class Puzzle:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("it requires a gradient")

    def step(self, action):
        observation, *result, info = super().step(action)
        return self.Puzzle() if self.position > 9 else observation, *result, info


def test_a_result_that_cannot_be_recorded_is_returned_all_the_same():
    env = recorded(Puzzles)
    for action in ACTIONS:
        env.step(action)
    with pytest.raises(SnapshotError, match="what Puzzles returns cannot be put on record: it requires a gradient"):
        snapshot(env)
