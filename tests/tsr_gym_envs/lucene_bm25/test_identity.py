import numpy as np
import pytest

from tsr_gym_envs.lucene_bm25.build import first_repeated


def table(ids):
    names = [name.encode() for name in ids]
    return np.cumsum([0, *map(len, names)]), np.frombuffer(b"".join(names), np.uint8)


@pytest.mark.parametrize("at_a_time", [3, 1000])
def test_a_repeated_id_is_found_wherever_it_stands(at_a_time):
    ids = [f"id-{number}" for number in range(500)]
    assert first_repeated(*table(ids), at_a_time) is None
    assert first_repeated(*table([*ids, "id-123"]), at_a_time) == (123, 500)


def test_prefixes_and_empty_ids_differ():
    assert first_repeated(*table(["", "a", "aa", "aaa"])) is None
    assert first_repeated(*table(["a", "", "b", ""])) == (1, 3)
    assert first_repeated(*table([])) is None
