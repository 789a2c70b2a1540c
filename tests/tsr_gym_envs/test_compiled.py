"""PCG64 in compiled code against numpy's own, draw by draw and word by word."""

import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.compiled import below, next_word, seed_all, set_words, uniform, words_of

LIMITS = (1, 2, 3, 7, 1000, 2**31 + 5, 2**32 - 1)


def draws(seed, methods):
    """Draw from numpy and from the compiled stream, and compare after every draw."""
    theirs = np.random.default_rng(seed)
    streams = np.stack([words_of(np.random.default_rng(0)), words_of(theirs)])
    for method in methods:
        if method == 0:
            assert uniform(streams, 1) == theirs.random()
        elif method == 1:
            assert int(next_word(streams, 1)) == theirs.bit_generator.random_raw()
        else:
            assert below(streams, 1, method) == theirs.integers(method)
        assert np.array_equal(streams[1], words_of(theirs))
    assert np.array_equal(streams[0], words_of(np.random.default_rng(0)))


@given(st.integers(0, 2**64), st.lists(st.sampled_from((0, 1, *LIMITS)), max_size=30))
def test_a_stream_draws_what_numpy_draws(seed, kinds):
    draws(seed, kinds)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 2**32 - 1), max_size=20))
def test_numbers_below_any_limit_are_numpys(seed, limits):
    draws(seed, [limit if limit > 1 else 2 for limit in limits])


@pytest.mark.deep
def test_long_streams_stay_together():
    streams = np.stack([words_of(np.random.default_rng(seed)) for seed in range(100)])
    for seed in range(100):
        theirs = np.random.default_rng(seed)
        assert [uniform(streams, seed) for _ in range(10_000)] == theirs.random(10_000).tolist()
        assert [below(streams, seed, 3) for _ in range(10_000)] == [theirs.integers(3) for _ in range(10_000)]


def test_a_generator_continues_from_its_words():
    first, other = np.random.default_rng(5), np.random.default_rng(6)
    first.integers(7)
    set_words(other, words_of(first))
    assert other.bit_generator.state == first.bit_generator.state
    assert other.integers(9, size=10).tolist() == first.integers(9, size=10).tolist()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_streams_begin_where_numpys_and_gymnasiums_generators_begin(seeds):
    streams = np.full((len(seeds) + 2, 6), 7, np.uint64)
    # In reverse, and not in the first and the last row.
    rows = np.arange(len(seeds), 0, -1)
    seed_all(streams, rows, np.array(seeds, np.uint64))
    for row, seed in zip(rows, seeds, strict=True):
        assert np.array_equal(streams[row], words_of(np.random.default_rng(seed)))
        assert np.array_equal(streams[row], words_of(seeding.np_random(seed)[0]))
    assert (streams[[0, -1]] == 7).all()


def test_streams_begin_equally_at_the_borders_of_seeds():
    seeds = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    streams = np.zeros((len(seeds), 6), np.uint64)
    seed_all(streams, np.arange(len(seeds)), np.array(seeds, np.uint64))
    assert np.array_equal(streams, [words_of(np.random.default_rng(seed)) for seed in seeds])
