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


@pytest.mark.parametrize("buffer", [np.zeros(3, np.uint8), np.zeros(1000, np.int64)])
def test_foreign_bytes_are_refused(buffer):
    with pytest.raises(ValueError, match="bytes, got"):
        Columns(LAYOUT, 3, buffer)
