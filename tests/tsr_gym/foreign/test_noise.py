"""Gymnasium's generator of an environment, set from outside."""

import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign.noise import place_generator
from tsr_gym.random_stream import position_of


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
def test_a_generator_stands_where_it_is_put_whatever_was_there(present):
    wanted = np.random.default_rng(8)
    wanted.random(3)
    env = env_with(present)
    placed = place_generator(env, position_of(wanted), None)
    assert placed is env.np_random
    assert (placed is present) == (present is not None and type(present.bit_generator) is np.random.PCG64)
    assert placed.random() == wanted.random()


def test_a_seed_counts_even_where_there_was_no_generator_yet():
    numbers = []
    for present in (None, np.random.default_rng(3)):
        env = env_with(present)
        place_generator(env, None, 11)
        numbers.append(env.np_random.random())
        assert env.np_random_seed == 11
    assert numbers[0] == numbers[1] == np.random.Generator(np.random.PCG64(np.random.SeedSequence(11))).random()


def test_no_position_and_no_seed_is_no_generator():
    env = env_with(np.random.default_rng(3))
    assert place_generator(env, None, None) is None
    assert env._np_random is None
