import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym_envs.lucene_bm25.top import id_before, offer, rank

IDS = ["b", "a", "aa", "ab", "", "\u4e2d", "z", "10", "9", "\U0001f600"]
NAMES = [name.encode() for name in IDS]
ENDS, DATA = np.cumsum([0, *map(len, NAMES)]), np.frombuffer(b"".join(NAMES), np.uint8)


def test_ids_are_compared_byte_by_byte():
    for one in range(len(IDS)):
        for other in range(len(IDS)):
            assert id_before(ENDS, DATA, one, other) == (NAMES[one] < NAMES[other])


@given(st.permutations(range(len(IDS))), st.lists(st.integers(0, 3), min_size=10, max_size=10), st.integers(1, 12))
def test_the_heap_keeps_the_best_in_any_order_of_arrival(order, scores, most):
    passages, kept, size = np.zeros(most, np.int64), np.zeros(most, np.float32), 0
    for passage in order:
        size = offer(ENDS, DATA, passages, kept, size, passage, np.float32(scores[passage]))
    rank(ENDS, DATA, passages, kept, size)
    wanted = sorted(range(len(IDS)), key=lambda passage: (-scores[passage], NAMES[passage]))[:most]
    assert passages[:size].tolist() == wanted
    assert kept[:size].tolist() == [scores[passage] for passage in wanted]
