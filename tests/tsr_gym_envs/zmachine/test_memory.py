"""Memory as differences is the memory, whatever differs."""

import numpy as np
import pytest

from tsr_gym_envs.zmachine.machine import Memory, can_be, differences, filled


@pytest.mark.parametrize("changes", [0, 1, 17, 4000])
def test_cells_come_back_from_their_differences(changes):
    rng = np.random.default_rng(changes)
    start = rng.integers(256, size=4000, dtype=np.uint8)
    cells = start.copy()
    places = rng.choice(4000, size=changes, replace=False)
    cells[places] += 1
    kept = differences(cells, start)
    assert np.array_equal(filled(*kept, start), cells)
    assert (len(kept[0]), len(kept[1])) == (4 * changes, changes)


def test_equal_cells_have_equal_differences_and_the_start_is_not_touched():
    start = np.zeros(5, np.uint8)
    cells = np.array([0, 1, 0, 2, 0], np.uint8)
    assert differences(cells, start) == differences(cells.copy(), start) == (b"\x01\0\0\0\x03\0\0\0", b"\x01\x02")
    filled(*differences(cells, start), start)[0] = 9
    assert start.tolist() == [0] * 5


@pytest.mark.parametrize(
    "forged", [None, (), (b"", b"", (), b""), Memory(b"\0", b"", (), b""), Memory(b"", "", (), b"")], ids=repr
)
def test_what_cannot_be_a_memory_is_known(forged):
    assert not can_be(forged)
    assert can_be(Memory(b"\0\0\0\0", b"\1", (1, 2), b""))
