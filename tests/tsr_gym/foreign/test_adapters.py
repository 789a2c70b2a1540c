"""Adapters: environments that declare their state, and environments that are copied."""

import random

import gymnasium as gym
import numpy as np
import pygame
import pytest

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import play
from tsr_gym import Snapshot, SnapshotEnv, SnapshotError, clone, env_support, restore, snapshot

FOUR_ACTIONS = [2, 0, 1, 1]


class Promises(worlds.RemembersItsArguments):
    """Cannot be copied, and declares its state."""

    def begin(self, seed):
        worlds.Locked.begin(self, seed)

    def env_state(self):
        return {"position": self.position}

    def set_env_state(self, state):
        self.position = state["position"]


class Bare(worlds.Promises):
    """Its constructor's arguments are unknown, and it holds an object that cannot be copied."""


class Copyable(worlds.Plain):
    """Its constructor's arguments are unknown, and its declared state leaves out some attributes."""

    def begin(self, seed):
        self.cache = [self.position]

    def env_state(self):
        return self.position

    def set_env_state(self, state):
        self.position = state
        self.cache[:] = [state]


class Elsewhere(worlds.HoldsANumber):
    """Keeps its world outside of the object, and declares it as state."""

    def env_state(self):
        return self.position, tuple(worlds.WORLDS[self.handle])

    def set_env_state(self, state):
        self.position, world = state
        worlds.WORLDS[self.handle] = list(world)


def test_the_protocol_is_recognised_by_its_methods_and_a_state_that_is_not_one_is_refused():
    assert isinstance(Promises(), SnapshotEnv)
    assert not isinstance(worlds.Plain(), SnapshotEnv)
    assert env_support(Promises()).level == "exact"
    env, plain = Promises(), worlds.Plain()
    env.reset(seed=1)
    plain.reset(seed=1)
    layer = snapshot(env).layers[0]
    with pytest.raises(SnapshotError, match=r"wanted the result of Promises.env_state\(\), got .*damaged"):
        restore(env, Snapshot((layer._replace(state=snapshot(plain).layers[0].state),)))


def test_an_environment_continues_from_its_declared_state_here_and_from_bytes():
    env = Promises(bonus=2)
    env.reset(seed=1)
    env.step(1)
    snap = snapshot(env)
    went_on = play(env, FOUR_ACTIONS)
    for other, taken in ((env, snap), (Promises(bonus=2), Snapshot.from_bytes(snap.to_bytes())), (clone(env), snap)):
        restore(other, taken)
        assert (snapshot(other), play(other, FOUR_ACTIONS)) == (snap, went_on)


def test_its_generator_is_reseeded_by_fresh_noise():
    env = Promises()
    env.reset(seed=1)
    snap = snapshot(env)
    rolls = []
    for seed in (None, 1, 2, 1, 9):
        restore(env, snap, **({} if seed is None else {"noise": "fresh", "seed": seed}))
        rolls.append(tuple(play(env, FOUR_ACTIONS)))
    assert (len(set(rolls)), rolls[1]) == (4, rolls[3])
    restore(env, snap, noise="fresh", seed=9)
    before, wanted = env.position, np.random.Generator(np.random.PCG64(np.random.SeedSequence(9))).integers(1, 7)
    env.step(0)
    assert (env.position - before, env.np_random_seed) == (wanted, 9)


def test_without_known_arguments_a_clone_is_a_copy():
    env = Copyable()
    env.reset(seed=1)
    env.step(2)
    twin = clone(env)
    assert twin.cache is not env.cache
    assert twin.np_random is not env.np_random
    wanted = play(clone(env), FOUR_ACTIONS)
    assert (play(twin, FOUR_ACTIONS), play(env, FOUR_ACTIONS)) == (wanted, wanted)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Bare, "arguments of this Bare are not recorded.*: the attribute lock"),
        (
            Elsewhere,
            "arguments of this Elsewhere are not recorded.*: copies of Elsewhere play different",
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


ACTIONS = [2, 1, 2, 0, 1, 2, 2, 0]
GOOD = [worlds.Plain, worlds.RemembersItsArguments, worlds.ManyKinds, worlds.CountsWithAnIterator]


GOOD += [worlds.Closure, worlds.InnerEnv, worlds.Clocked, worlds.Raises]
GYMNASIUMS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]


# Gymnasium 1.2 has v3, later ones v4.
TAXI = max(name for name in gym.registry if name.startswith("Taxi-v"))
GYMNASIUMS += ["Blackjack-v1", "FrozenLake-v1", "CliffWalkingSlippery-v1", TAXI]


@pytest.mark.parametrize("make", GOOD)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_restored_environment_continues_the_same_episode(make, num_steps):
    env = make()
    env.reset(seed=4)
    play(env, ACTIONS[:num_steps])
    snap = snapshot(env)
    went_on = play(env, ACTIONS)
    end = snapshot(env)
    for other in (env, make(), clone(env)):
        restore(other, snap)
        assert (snapshot(other), play(other, ACTIONS)) == (snap, went_on)
        assert snapshot(other) == end
    assert end != snap


@pytest.mark.parametrize("name", GYMNASIUMS)
def test_gymnasiums_environments_continue_the_same_episode_also_from_bytes(name):
    env, other = gym.make(name), gym.make(name)
    env.action_space.seed(1)
    assert env_support(env).level == "deepcopy"
    env.reset(seed=3)
    for _ in range(2):
        env.step(env.action_space.sample())
        snap = snapshot(env)
        actions = [env.action_space.sample() for _ in range(6)]
        went_on = play(env, actions)
        for target, taken in ((env, snap), (other, Snapshot.from_bytes(snap.to_bytes()))):
            restore(target, taken)
            assert play(target, actions) == went_on
        restore(env, snap)


@pytest.mark.parametrize("make", [worlds.Plain, worlds.ManyKinds])
def test_fresh_noise_depends_on_its_seed_alone(make):
    env = make()
    env.reset(seed=1)
    snap = snapshot(env)

    def rolls(**noise):
        restore(env, snap, **noise)
        return play(env, ACTIONS)

    own = rolls()
    fresh = [rolls(noise="fresh", seed=seed) for seed in range(6)]
    play(env, ACTIONS)
    assert fresh == [rolls(noise="common", seed=seed) for seed in range(6)]
    assert len({tuple(numbers) for numbers in [own, *fresh]}) == 7
    assert rolls() == own


def test_fresh_noise_reseeds_every_generator_and_those_handed_out_draw_from_it():
    env = worlds.ManyKinds()
    env.reset(seed=1)
    snap = snapshot(env)
    restore(env, snap)
    own = env.own.random(), env.legacy.random(), env.python.random()
    restore(env, snap, noise="fresh", seed=1)
    fresh = env.own.random(), env.legacy.random(), env.python.random()
    assert all(own_number != fresh_number for own_number, fresh_number in zip(own, fresh, strict=True))
    restore(env, snap, noise="fresh", seed=1)
    assert fresh == (env.own.random(), env.legacy.random(), env.python.random())
    env = worlds.Plain()
    env.reset(seed=1)
    held = env.np_random
    snap = snapshot(env)
    first = held.random()
    restore(env, snap)
    assert held is env.np_random
    assert held.random() == first


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (worlds.Locked, "the attribute lock of Locked: a _thread.lock cannot be copied"),
        (worlds.Generating, r"the attribute rolls of Generating: .*generator"),
        (worlds.Frees, r"Frees frees a resource when it is deleted \(__del__\)"),
        (worlds.HoldsWhatFrees, "the attribute resource .* frees a resource"),
        (worlds.Views, "the attribute first of Views: two arrays share memory"),
        (worlds.DrawsGlobally, "draws from the global generator of numpy.random"),
        (worlds.DrawsPythonGlobally, "draws from the global generator of random"),
        (worlds.DrawsFromItsSpace, "draws from the generator of its space"),
        (worlds.CountsInItsClass, "play different episodes: the observation"),
        (worlds.HoldsANumber, "play different episodes: the observation"),
        (worlds.LooksAtTheClock, "play different episodes: the observation"),
    ],
)
def test_what_cannot_be_copied_exactly_is_refused_with_the_reason(make, why):
    env = make()
    env.reset(seed=1)
    freed = worlds.Frees.freed, worlds.Resource.freed
    with pytest.raises(SnapshotError, match=why):
        snapshot(env)
    assert (worlds.Frees.freed, worlds.Resource.freed) == freed


@pytest.mark.parametrize("make", [*GOOD, worlds.Locked, worlds.Views, worlds.DrawsGlobally, worlds.Frees])
def test_asking_for_support_and_taking_snapshots_disturb_nothing(make):
    env, untouched = make(), make()
    env.action_space.seed(1)
    untouched.action_space.seed(1)
    env_support(env)
    for played in (env, untouched):
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)
        played.reset(seed=3)
        if played is env:
            env_support(env)
            if env_support(env).level == "deepcopy":
                snapshot(env)
        played.came = play(played, [played.action_space.sample() for _ in range(5)])
    assert env.came == untouched.came


class CountsResetsInItsClass(worlds.Plain):
    """Every reset of any instance changes the episodes of all instances."""

    resets = 0

    def begin(self, seed):
        type(self).resets += 1

    def roll(self):
        return type(self).resets


class SeedsItsSpace(worlds.Plain):
    """Seeds its action space, from which callers sample."""

    def begin(self, seed):
        self.action_space.seed(seed)


SEEN_BEFORE_AND_AFTER = {
    **dict.fromkeys([*GOOD, SeedsItsSpace], "deepcopy"),
    **dict.fromkeys([worlds.Locked, worlds.LockedWithArguments, worlds.HoldsANumber], "replay"),
    **dict.fromkeys([worlds.RemembersEpisodes, CountsResetsInItsClass], "none"),
    **dict.fromkeys([worlds.DrawsGlobally, worlds.DrawsFromItsSpace, worlds.LooksAtTheClock], "none"),
}


def test_a_snapshot_shares_nothing_with_the_environment_and_what_went_comes_back():
    env = worlds.ManyKinds()
    env.reset(seed=1)
    snap, other = snapshot(env), snapshot(env)
    env.body.path.append("written")
    env.grid[:] = 7
    env.queue.append("written")
    env.later = 1
    del env.counts
    assert snap == other
    for _ in range(2):
        restore(env, snap)
        assert (env.body.path, env.counts, "later" in vars(env)) == ([], {}, False)
        env.body.path.append("written again")


@pytest.mark.parametrize(("make", "level"), SEEN_BEFORE_AND_AFTER.items())
def test_support_is_the_same_before_and_after_reset(make, level):
    env = make()
    before = env_support(env)
    env.reset(seed=1)
    assert env_support(env).level == before.level == level
    assert env_support(make()).level == level


def test_only_the_first_of_its_kind_is_proved_and_its_entry_point_may_be_a_class():
    class Counts(worlds.Plain):
        steps = 0

        def step(self, action):
            type(self).steps += 1
            return super().step(action)

    spec = gym.envs.registration.EnvSpec("Counts-v0", entry_point=Counts, max_episode_steps=9)
    env = gym.make(spec)
    assert env_support(env).level == "deepcopy"
    proved = Counts.steps
    assert proved > 0
    for _ in range(3):
        env = gym.make(spec)
        env_support(env)
        env.reset(seed=1)
        snapshot(env)
        snapshot(clone(env))
    assert Counts.steps == proved


def test_snapshots_of_other_settings_before_a_reset_and_of_vectors_are_refused():
    dry, other = gym.make("FrozenLake-v1", is_slippery=False), gym.make("FrozenLake-v1", map_name="8x8")
    dry.reset(seed=1)
    other.reset(seed=2)
    before = snapshot(other)
    with pytest.raises(SnapshotError, match=r"other settings .*is_slippery.*same arguments"):
        restore(other, snapshot(dry))
    assert snapshot(other) == before
    maps = [gym.make("FrozenLake-v1", desc=None, map_name=None) for _ in range(2)]
    for env in maps:
        env.reset(seed=1)
    assert not np.array_equal(maps[0].unwrapped.desc, maps[1].unwrapped.desc)
    with pytest.raises(SnapshotError, match="desc"):
        restore(maps[1], snapshot(maps[0]))
    with pytest.raises(SnapshotError, match=r"CartPoleEnv has no state yet: call reset\(\)"):
        snapshot(gym.make("CartPole-v1"))
    with pytest.raises(SnapshotError, match="single ones"):
        snapshot(gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))


def test_rendering_is_no_state_and_a_clone_draws_on_a_separate_surface():
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=1)
    before = snapshot(env)
    frame = env.render()
    surface = env.unwrapped.screen
    assert snapshot(env) == before
    env.step(1)
    restore(env, before)
    assert env.unwrapped.screen is surface
    assert np.array_equal(env.render(), frame)
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=1)
    frame = env.render()
    twin = clone(env)
    assert np.array_equal(twin.render(), frame)
    twin.step(1)
    assert not np.array_equal(twin.render(), frame)
    assert np.array_equal(env.render(), frame)
    assert twin.unwrapped.action_space is not env.unwrapped.action_space


def test_the_proof_opens_no_window(monkeypatch):
    env = gym.make("CartPole-v1", render_mode="human").unwrapped
    monkeypatch.setattr(pygame.display, "set_mode", lambda size: pytest.fail("a window was opened"))
    assert env_support(env).level == "deepcopy"
    gym.Env.reset(env, seed=1)
    env.state = np.zeros(4)
    assert env_support(env).level == "deepcopy"
    snapshot(env)


def test_what_has_no_bytes_names_the_attribute_and_still_works_in_memory():
    env = worlds.CountsWithAnIterator()
    env.reset(seed=1)
    snap = snapshot(env)
    for ask in (Snapshot.to_bytes, lambda one: one.digest):
        with pytest.raises(SnapshotError, match=r"the attribute score has no byte form: .*itertools\.count"):
            ask(snap)
    assert (snap, len({snap, snapshot(env)})) == (snapshot(env), 1)
    env.step(0)
    assert snap != snapshot(env)
