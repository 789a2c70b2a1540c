"""What callers hand to a batch, read and refused."""

import numpy as np
import pytest
from gymnasium.error import InvalidAction

from tsr_gym import ConfigError
from tsr_gym_envs.batch_arguments import as_actions, as_mask, as_numbers, as_seeds, as_targets


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_actions_of_any_whole_kind_become_longs(dtype):
    actions = as_actions(np.array([0, 3, 1], dtype), 3)
    assert (actions.tolist(), actions.dtype) == ([0, 3, 1], np.int64)
    assert as_actions([2, 2], 2).tolist() == [2, 2]


@pytest.mark.parametrize("actions", [[0, 4], [-1, 0], [0], [0.0, 1.0], [[0, 1]], [True, False]])
def test_what_is_no_action_is_refused(actions):
    with pytest.raises(InvalidAction, match="wanted 2 actions from 0 to 3"):
        as_actions(actions, 2)


def test_text_for_a_batch_is_told_where_texts_are_taken():
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
