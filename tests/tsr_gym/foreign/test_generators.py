"""Generators of every library: read, built, reseeded, placed in an environment, and watched."""

import random

import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import play
from tsr_gym import Snapshot, SnapshotError, replayable, restore, snapshot
from tsr_gym.foreign.generators import (
    KINDS,
    build,
    dice_of,
    held_by,
    place_dice,
    place_generator,
    reading,
    reseed,
    reseeded,
    watched_globals,
)
from tsr_gym.random_stream import position_of

MAKES = [
    lambda: np.random.default_rng(1), lambda: np.random.Generator(np.random.MT19937(1)),
    lambda: np.random.Generator(np.random.Philox(1)), lambda: np.random.RandomState(1), lambda: random.Random(1),
    lambda: np.random.PCG64(1), lambda: np.random.SFC64(1),
]  # fmt: skip


def draw(generator):
    """Return a few numbers of a generator of any type."""
    if isinstance(generator, np.random.BitGenerator):
        return generator.random_raw(5).tolist()
    if isinstance(generator, np.random.Generator):
        # Drawing 32 bits leaves half of a 64-bit draw, which is part of the state.
        return [*generator.integers(2**32, size=3, dtype=np.uint32).tolist(), generator.normal()]
    return [generator.random() for _ in range(3)] + [generator.gauss(0, 1) if hasattr(generator, "gauss") else 0]


@pytest.mark.parametrize("make", MAKES)
def test_a_rebuilt_generator_draws_what_the_original_draws(make):
    generator = make()
    draw(generator)
    name, state = reading(generator)
    wanted = draw(generator)
    for _ in range(2):
        made = build(name, state)
        assert type(made) is type(generator)
        assert draw(made) == wanted


@pytest.mark.parametrize("make", MAKES)
def test_reseeding_depends_on_seed_and_number_alone(make):
    generator, other = make(), make()
    draw(other)
    came = {}
    for seed, number in ((1, 1), (1, 2), (2, 1)):
        made = reseeded(*reading(generator), seed, number)
        reseed(other, seed, number)
        came[seed, number] = draw(made)
        assert draw(other) == came[seed, number]
    assert len({tuple(numbers) for numbers in came.values()}) == 3


def test_generators_are_found_in_attributes_containers_and_objects_once():
    class Thing:
        pass

    env, deck = Thing(), Thing()
    env.deck, deck.rng = deck, random.Random(1)
    env.all = {"a": [np.random.default_rng(1)], "again": deck.rng}
    env.myself = env
    held = held_by(env)
    assert [type(item) for item in held] == [random.Random, np.random.Generator]
    assert all(type(item) in KINDS for item in held)
    with pytest.raises(SnapshotError, match="unknown type of generator 'Loaded'"):
        build("Loaded", None)


def test_global_generators_are_watched_and_put_back():
    def draw_both(count=1):
        return random.random(), np.random.random(count).tolist()  # noqa: NPY002

    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    wanted = draw_both()
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    with watched_globals() as nothing:
        pass
    with watched_globals() as both:
        draw_both(700)
    with watched_globals() as one:
        np.random.random()  # noqa: NPY002
    assert (nothing.names, both.names, one.names) == ((), ("random", "numpy.random"), ("numpy.random",))
    assert draw_both() == wanted


def env_with(generator):
    env = worlds.Plain()
    if generator is not None:
        env._np_random = generator
    return env


PRESENT = {
    "none": None,
    "same kind": np.random.default_rng(3),
    "another kind": np.random.Generator(np.random.MT19937(3)),
}


@pytest.mark.parametrize("present", PRESENT.values(), ids=PRESENT)
def test_a_generator_is_set_to_a_position_from_any_state(present):
    wanted = np.random.default_rng(8)
    wanted.random(3)
    env = env_with(present)
    placed = place_generator(env, position_of(wanted), None)
    assert placed is env.np_random
    assert (placed is present) == (present is not None and type(present.bit_generator) is np.random.PCG64)
    assert placed.random() == wanted.random()


def test_a_seed_counts_where_there_was_no_generator_yet():
    numbers = []
    for present in (None, np.random.default_rng(3)):
        env = env_with(present)
        place_generator(env, None, 11)
        numbers.append(env.np_random.random())
        assert env.np_random_seed == 11
    assert numbers[0] == numbers[1] == np.random.Generator(np.random.PCG64(np.random.SeedSequence(11))).random()
    env = env_with(np.random.default_rng(3))
    assert place_generator(env, None, None) is None
    assert env._np_random is None


class OwnDice(worlds.LockedWithArguments):
    """Draws from separate generators, which only a reset with a seed makes again."""

    def begin(self, seed):
        super().begin(seed)
        if seed is not None:
            self.dice = {"one": random.Random(seed), "more": [np.random.RandomState(seed), np.random.PCG64(seed)]}

    def roll(self):
        return self.dice["one"].randrange(6) + self.dice["more"][0].randint(6) + self.dice["more"][1].random_raw() % 7


def test_an_episode_without_a_seed_is_replayed_from_all_generators_that_an_environment_holds():
    env = replayable(OwnDice())
    env.reset(seed=3)
    play(env, [1, 2])
    env.reset()
    play(env, [2])
    snap = snapshot(env)
    went_on = play(env, [1, 0, 2])
    for target in (env, replayable(OwnDice())):
        restore(target, Snapshot.from_bytes(snap.to_bytes()))
        assert play(target, [1, 0, 2]) == went_on


def test_dice_come_back_in_place_and_those_of_others_are_refused():
    env = OwnDice()
    env.reset(seed=5)
    held = dict(env.dice)
    dice = dice_of(env)
    wanted = [env.roll() for _ in range(9)]
    place_dice(env, dice)
    assert ([env.roll() for _ in range(9)], env.dice) == (wanted, held)
    with pytest.raises(SnapshotError, match="wanted 3 generators in OwnDice, got 0"):
        place_dice(OwnDice(), dice)
    env.dice["one"] = np.random.RandomState(1)
    with pytest.raises(SnapshotError, match="of the type RandomState, got Random"):
        place_dice(env, dice)


def test_a_generator_of_torch_comes_back_and_those_of_spaces_stay():
    torch = pytest.importorskip("torch")
    env = worlds.Plain()
    env.dice = torch.Generator().manual_seed(4)
    dice = dice_of(env)
    wanted = torch.rand(3, generator=env.dice).tolist()
    place_dice(env, dice)
    assert torch.rand(3, generator=env.dice).tolist() == wanted
    env = replayable(OwnDice())
    env.reset(seed=1)
    env.action_space.seed(7)
    wanted = [env.action_space.sample() for _ in range(20)]
    env.action_space.seed(7)
    restore(env, snapshot(env), noise="fresh", seed=2)
    assert [env.action_space.sample() for _ in range(20)] == wanted
