"""Columns of states in arrays, and compiled functions."""

import numpy as np
import pytest
from gymnasium.error import InvalidAction
from gymnasium.utils import seeding
from hypothesis import example, given
from hypothesis import strategies as st

from tsr_gym import ConfigError
from tsr_gym_envs.columns import Columns, Field, as_actions, as_mask, as_numbers, as_seeds, as_targets
from tsr_gym_envs.compiled import below, next_word, seed_all, set_words, uniform, words_of

LAYOUT = (Field("flags", np.bool_), Field("words", np.uint64, 6), Field("board", np.uint8, 7), Field("cell", np.int32))


def test_columns_have_their_shapes_and_share_no_bytes():
    columns = Columns(LAYOUT, 5)
    shapes = {name: (column.shape, column.dtype) for name, column in columns.by_name.items()}
    assert shapes == {
        "flags": ((5,), bool), "words": ((5, 6), np.uint64), "board": ((5, 7), np.uint8), "cell": ((5,), np.int32),
    }  # fmt: skip
    for name in shapes:
        columns.buffer[:] = 0
        columns.by_name[name][:] = 1
        assert not any(column.any() for other, column in columns.by_name.items() if other != name)
        assert columns.by_name[name].ctypes.data % 8 == 0


def test_a_buffer_holds_all_of_them():
    columns = Columns(LAYOUT, 3)
    columns.by_name["board"][:] = np.arange(21).reshape(3, 7)
    again = Columns(LAYOUT, 3, columns.buffer.copy())
    assert np.array_equal(again.by_name["board"], columns.by_name["board"])


@pytest.mark.parametrize("same", [True, False])
def test_rows_are_copied_all_at_once_and_the_others_stay(same):
    rng = np.random.default_rng(0)
    target = Columns(LAYOUT, 4, rng.integers(2, size=Columns(LAYOUT, 4).buffer.size, dtype=np.uint8))
    other = Columns(LAYOUT, 6, rng.integers(2, size=Columns(LAYOUT, 6).buffer.size, dtype=np.uint8))
    source = target if same else other
    third = {name: column[2].copy() for name, column in target.by_name.items()}
    taken = {name: column.copy() for name, column in source.by_name.items()}
    target.copy_rows(np.array([3, 1, 3]), source, np.array([1, 3, 0]))
    for name, column in target.by_name.items():
        expected = [taken[name][3], taken[name][3], third[name], taken[name][1]]
        assert column.tobytes() == np.array(expected, column.dtype).tobytes()


@pytest.mark.parametrize("buffer", [np.zeros(3, np.uint8), np.zeros(1000, np.int64)])
def test_foreign_bytes_are_refused(buffer):
    with pytest.raises(ValueError, match="bytes, got"):
        Columns(LAYOUT, 3, buffer)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_actions_of_any_whole_kind_become_longs(dtype):
    actions = as_actions(np.array([0, 3, 1], dtype), 3)
    assert (actions.tolist(), actions.dtype) == ([0, 3, 1], np.int64)
    assert as_actions([2, 2], 2).tolist() == [2, 2]


@pytest.mark.parametrize("actions", [[0, 4], [-1, 0], [0], [0.0, 1.0], [[0, 1]], [True, False]])
def test_what_is_no_action_is_refused(actions):
    with pytest.raises(InvalidAction, match="wanted 2 actions from 0 to 3"):
        as_actions(actions, 2)


def test_masks_and_seeds_become_numbers_and_texts_are_refused():
    with pytest.raises(InvalidAction, match=r"wanted 2 actions from 0 to 3.*vectorization_mode='sync' or 'async'"):
        as_actions(["Up", "Down"], 2)
    assert as_mask(np.array([True, False, True]), 3).tolist() == [0, 2]
    for mask in ([True, False, True], np.ones(2, bool), np.ones(3)):
        with pytest.raises(ConfigError, match="reset_mask as an array of 3 booleans"):
            as_mask(mask, 3)
    assert (list(as_seeds(5, 3)), list(as_seeds(np.int64(5), 2))) == ([5, 6, 7], [5, 6])
    assert list(as_seeds(None, 2)) == [None, None]
    assert list(as_seeds([1, None, np.int32(3)], 3)) == [1, None, 3]
    with pytest.raises(ConfigError, match="a number or 3 seeds, got 2"):
        as_seeds([1, 2], 3)


def test_numbers_of_environments_are_checked_and_a_count_means_those_that_follow():
    assert as_numbers([2, 0, 2], 3).tolist() == [2, 0, 2]
    assert as_numbers([], 3).tolist() == []
    assert as_numbers(np.array([1], np.uint8), 3).dtype == np.int64
    for indices in ([3], [-1], [0.5], 1, [[0]]):
        with pytest.raises(ConfigError, match="wanted"):
            as_numbers(indices, 3)
    assert (as_targets(1, 3, 4).tolist(), as_targets(1, 0, 4).tolist()) == ([2, 3, 0], [])
    assert as_targets(0, [0, 2], 4).tolist() == [0, 2]
    for index, targets in ((4, 1), (0, 4), (0, -1), (0, [5])):
        with pytest.raises(ConfigError, match="wanted"):
            as_targets(index, targets, 4)


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


@given(st.integers(0, 2**64), st.lists(st.sampled_from((0, 1, *LIMITS)) | st.integers(2, 2**32 - 1), max_size=30))
def test_a_stream_draws_what_numpy_draws_below_any_limit(seed, methods):
    draws(seed, methods)


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


@example([0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
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
