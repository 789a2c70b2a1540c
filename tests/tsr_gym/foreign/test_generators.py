"""Generators of every kind: read and rebuilt, reseeded, found, and the global ones watched."""

import random

import numpy as np
import pytest

from tsr_gym import SnapshotError
from tsr_gym.foreign.generators import KINDS, build, held_by, reading, reseed, reseeded, watched_globals

MAKES = [
    lambda: np.random.default_rng(1),
    lambda: np.random.Generator(np.random.MT19937(1)),
    lambda: np.random.Generator(np.random.Philox(1)),
    lambda: np.random.RandomState(1),
    lambda: random.Random(1),
    lambda: np.random.PCG64(1),
    lambda: np.random.SFC64(1),
]


def draw(generator):
    """Return a few numbers of a generator of any kind."""
    if isinstance(generator, np.random.BitGenerator):
        return generator.random_raw(5).tolist()
    if isinstance(generator, np.random.Generator):
        # Thirty-two bits leave half of a draw behind, which must be remembered.
        return [*generator.integers(2**32, size=3, dtype=np.uint32).tolist(), generator.normal()]
    return [generator.random() for _ in range(3)] + [generator.gauss(0, 1) if hasattr(generator, "gauss") else 0]


@pytest.mark.parametrize("make", MAKES)
def test_a_rebuilt_generator_draws_what_the_original_draws(make):
    generator = make()
    draw(generator)
    kind, state = reading(generator)
    wanted = draw(generator)
    for _ in range(2):
        made = build(kind, state)
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


def test_an_unknown_kind_is_refused():
    with pytest.raises(SnapshotError, match="unknown kind of generator 'Loaded'"):
        build("Loaded", None)


def test_generators_are_found_in_attributes_containers_and_objects_once():
    class Thing:
        pass

    env, deck = Thing(), Thing()
    env.deck, deck.rng = deck, random.Random(1)
    env.all = {"a": [np.random.default_rng(1)], "again": deck.rng}
    env.myself = env
    found = held_by(env)
    assert [type(one) for one in found] == [random.Random, np.random.Generator]
    assert all(type(one) in KINDS for one in found)


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
