"""Environments that say what their state is."""

import pytest

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.plays import play
from tsr_gym import Snapshot, SnapshotEnv, SnapshotError, clone, env_support, restore, snapshot

ACTIONS = [2, 0, 1, 1]


class Promises(worlds.RemembersItsArguments):
    """Cannot be copied, and says what its state is."""

    def begin(self, seed):
        worlds.Locked.begin(self, seed)

    def env_state(self):
        return {"position": self.position}

    def set_env_state(self, state):
        self.position = state["position"]


class Bare(worlds.Promises):
    """Nobody knows how it was made, and it holds what cannot be copied."""


class Copyable(worlds.Plain):
    """Nobody knows how it was made; all of it is attributes, some of which it does not call its state."""

    def begin(self, seed):
        self.cache = [self.position]

    def env_state(self):
        return self.position

    def set_env_state(self, state):
        self.position = state
        self.cache[:] = [state]


class Elsewhere(worlds.HoldsANumber):
    """Keeps its world elsewhere, and says what it is."""

    def env_state(self):
        return self.position, tuple(worlds.WORLDS[self.handle])

    def set_env_state(self, state):
        self.position, world = state
        worlds.WORLDS[self.handle] = list(world)


def test_the_protocol_is_recognised_by_its_two_methods():
    assert isinstance(Promises(), SnapshotEnv)
    assert not isinstance(worlds.Plain(), SnapshotEnv)
    assert env_support(Promises()).level == "exact"


def test_an_environment_goes_on_from_what_it_said_here_and_from_bytes():
    env = Promises(bonus=2)
    env.reset(seed=1)
    env.step(1)
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    for other, taken in ((env, snap), (Promises(bonus=2), Snapshot.from_bytes(snap.to_bytes())), (clone(env), snap)):
        restore(other, taken)
        assert snapshot(other) == snap
        assert play(other, ACTIONS) == went_on


def test_its_generator_is_reseeded_by_fresh_noise():
    env = Promises()
    env.reset(seed=1)
    snap = snapshot(env)
    rolls = []
    for seed in (None, 1, 2, 1):
        restore(env, snap, **({} if seed is None else {"noise": "fresh", "seed": seed}))
        rolls.append(tuple(play(env, ACTIONS)))
    assert len(set(rolls)) == 3
    assert rolls[1] == rolls[3]


def test_a_clone_of_what_nobody_knows_how_to_make_is_a_copy():
    env = Copyable()
    env.reset(seed=1)
    env.step(2)
    twin = clone(env)
    assert twin.cache is not env.cache
    assert twin.np_random is not env.np_random
    wanted = play(clone(env), ACTIONS)
    assert play(twin, ACTIONS) == wanted
    assert play(env, ACTIONS) == wanted


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Bare, "nobody knows how this Bare was made.*; nor can it be copied: the attribute lock"),
        (
            Elsewhere,
            "nobody knows how this Elsewhere was made.*; nor can it be copied: copies of Elsewhere do not play",
        ),
    ],
)
def test_a_clone_is_refused_where_copies_would_share_a_world_and_nothing_changes(make, why):
    env = make()
    env.reset(seed=1)
    env.step(1)
    before = snapshot(env)
    with pytest.raises(SnapshotError, match=why):
        clone(env)
    assert snapshot(env) == before


def test_a_state_that_is_not_one_is_refused():
    env, plain = Promises(), worlds.Plain()
    env.reset(seed=1)
    plain.reset(seed=1)
    layer = snapshot(env).layers[0]
    with pytest.raises(SnapshotError, match=r"wanted what Promises.env_state\(\) returned, got .*damaged"):
        restore(env, Snapshot((layer._replace(state=snapshot(plain).layers[0].state),)))
