"""Lengths in a byte, and postings packed in blocks, compared with plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym_envs.lucene_bm25.oracles import byte4
from tsr_gym_envs.lucene_bm25.layout import (
    BOUND,
    COUNT_WIDTH,
    LAST,
    LENGTHS,
    SIZE,
    START,
    WIDTH,
    inverse_norms,
    length_bytes,
    pack,
    take,
    unpack,
)


def test_short_lengths_are_exact_and_long_ones_keep_four_bits():
    # SmallFloat.byte4ToInt for these bytes, from Lucene.
    assert LENGTHS[[0, 23, 24, 39, 40, 41, 47, 48, 255]].tolist() == [0, 23, 24, 39, 40, 42, 54, 56, 2013265944]
    assert np.all(np.diff(LENGTHS) > 0)


def test_a_length_becomes_the_greatest_that_is_not_above_it():
    lengths = np.array([*range(3000), 10**6 + 7, 2**31 - 1])
    assert LENGTHS[length_bytes(lengths)].tolist() == [byte4(int(length)) for length in lengths]


def test_norms_are_computed_in_single_precision():
    f32 = np.float32
    norms = inverse_norms(0.9, 0.4, 71.3)
    assert norms.dtype == np.float32
    by_hand = f32(1) / (f32(0.9) * ((f32(1) - f32(0.4)) + f32(0.4) * f32(30) / f32(71.3)))
    assert norms[30] == by_hand
    assert np.isinf(inverse_norms(0, 0.4, 10)).all()


NUM = 100_000
LENGTH_BYTES = np.random.default_rng(0).integers(1, 60, NUM).astype(np.uint8)
INVERSE = inverse_norms(0.9, 0.4, 30)

TERM = st.dictionaries(
    st.integers(0, NUM - 1) | st.integers(0, 300), st.integers(1, 5) | st.integers(1, 2**20), min_size=1, max_size=300
)


def packed(terms):
    postings = [sorted(term.items()) for term in terms]
    passages, counts = (np.array([pair[part] for term in postings for pair in term], np.uint32) for part in (0, 1))
    ends = np.cumsum([0, *map(len, postings)])
    num_blocks = sum(-(-len(term) // SIZE) for term in postings)
    words, blocks = np.zeros(2 * passages.size + num_blocks + 2, np.uint32), np.zeros((num_blocks, 5), np.uint32)
    used = pack(passages, counts, ends, LENGTH_BYTES, INVERSE, 7, words[: words.size - 1], blocks)
    return postings, words, blocks, used


@given(st.lists(TERM, min_size=1, max_size=4))
def test_what_was_packed_is_unpacked(terms):
    postings, words, blocks, used = packed(terms)
    number = 0
    for term in postings:
        before = -1
        for first in range(0, len(term), SIZE):
            wanted, block = term[first : first + SIZE], blocks[number].tolist()
            out, size = np.zeros(SIZE + 3, np.uint32), len(wanted)
            start = block[START] - 7
            args = (start, size, block[WIDTH], block[COUNT_WIDTH], before, block[LAST])
            assert unpack(words, *args, out, 3)
            assert out[3 : 3 + size].tolist() == [passage for passage, _ in wanted]
            bit = 32 * start + (size - 1) * block[WIDTH]
            counts = [1 + take(words, bit + place * block[COUNT_WIDTH], block[COUNT_WIDTH]) for place in range(size)]
            assert counts == [count for _, count in wanted]
            before, number = block[LAST], number + 1
    assert number == len(blocks)
    assert used <= words.size - 2


@given(st.lists(TERM, min_size=1, max_size=2))
def test_a_bound_is_never_below_a_score(terms):
    postings, _, blocks, _ = packed(terms)
    number = 0
    for term in postings:
        for first in range(0, len(term), SIZE):
            for passage, count in term[first : first + SIZE]:
                weight = np.float32(3.7)
                score = weight - weight / (np.float32(1) + np.float32(count) * INVERSE[LENGTH_BYTES[passage]])
                assert float(score) <= float(weight) * (int(blocks[number, BOUND]) + 1) / 256
            number += 1


def test_a_term_of_one_passage_takes_no_words():
    _, _, blocks, used = packed([{41: 1}])
    assert used == 0
    assert blocks[0, LAST] == 41


def test_a_damaged_block_is_noticed():
    _, words, blocks, _ = packed([{number * 3: 1 + number % 4 for number in range(SIZE)}])
    width, count_width, last = (int(blocks[0, column]) for column in (WIDTH, COUNT_WIDTH, LAST))
    out = np.zeros(SIZE, np.uint32)
    assert unpack(words, 0, SIZE, width, count_width, -1, last, out, 0)
    assert not unpack(words, 0, SIZE, width, count_width, -1, 100, out, 0)
    assert not unpack(words, 0, SIZE, 33, count_width, -1, last, out, 0)
    assert not unpack(words, words.size, SIZE, width, count_width, -1, last, out, 0)
