"""Columns in one buffer: apart from each other, and rebuilt from their bytes."""

import numpy as np
import pytest

from tsr_gym_envs.columns import Columns, Field

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
        wanted = [taken[name][3], taken[name][3], third[name], taken[name][1]]
        assert column.tobytes() == np.array(wanted, column.dtype).tobytes()


@pytest.mark.parametrize("buffer", [np.zeros(3, np.uint8), np.zeros(1000, np.int64)])
def test_foreign_bytes_are_refused(buffer):
    with pytest.raises(ValueError, match="bytes, got"):
        Columns(LAYOUT, 3, buffer)
