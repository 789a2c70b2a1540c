"""Columns in one buffer against plain arrays, and the checks of a caller's arrays."""

import numpy as np
import pytest
from gymnasium.error import InvalidAction

from tsr_gym import ConfigError
from tsr_gym_envs.columns import Columns, Field, as_actions, as_mask, as_numbers, as_seeds, as_targets

LAYOUT = (Field("flags", np.bool_), Field("words", np.uint64, 6), Field("board", np.uint8, 7), Field("cell", np.int32))


def test_columns_have_their_shapes_and_share_no_bytes():
    columns = Columns(LAYOUT, 5)
    shapes = {name: (column.shape, column.dtype) for name, column in columns.by_name.items()}
    assert shapes == {
        "flags": ((5,), bool),
        "words": ((5, 6), np.uint64),
        "board": ((5, 7), np.uint8),
        "cell": ((5,), np.int32),
    }
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


def test_text_for_a_batch_is_refused_with_the_mode_that_takes_texts():
    with pytest.raises(InvalidAction, match=r"wanted 2 actions from 0 to 3.*vectorization_mode='sync' or 'async'"):
        as_actions(["Up", "Down"], 2)


def test_masks_become_numbers():
    assert as_mask(np.array([True, False, True]), 3).tolist() == [0, 2]
    for mask in ([True, False, True], np.ones(2, bool), np.ones(3)):
        with pytest.raises(ConfigError, match="reset_mask as an array of 3 booleans"):
            as_mask(mask, 3)


def test_one_seed_counts_on_and_many_stand_for_themselves():
    assert list(as_seeds(5, 3)) == [5, 6, 7]
    assert list(as_seeds(np.int64(5), 2)) == [5, 6]
    assert list(as_seeds(None, 2)) == [None, None]
    assert list(as_seeds([1, None, np.int32(3)], 3)) == [1, None, 3]
    with pytest.raises(ConfigError, match="a number or 3 seeds, got 2"):
        as_seeds([1, 2], 3)


def test_numbers_of_environments_are_checked():
    assert as_numbers([2, 0, 2], 3).tolist() == [2, 0, 2]
    assert as_numbers([], 3).tolist() == []
    assert as_numbers(np.array([1], np.uint8), 3).dtype == np.int64
    for indices in ([3], [-1], [0.5], 1, [[0]]):
        with pytest.raises(ConfigError, match="wanted"):
            as_numbers(indices, 3)


def test_a_number_of_targets_means_those_that_follow():
    assert as_targets(1, 3, 4).tolist() == [2, 3, 0]
    assert as_targets(1, 0, 4).tolist() == []
    assert as_targets(0, [0, 2], 4).tolist() == [0, 2]
    for index, targets in ((4, 1), (0, 4), (0, -1), (0, [5])):
        with pytest.raises(ConfigError, match="wanted"):
            as_targets(index, targets, 4)
