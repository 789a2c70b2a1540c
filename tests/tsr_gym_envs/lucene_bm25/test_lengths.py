import numpy as np

from tests.tsr_gym_envs.lucene_bm25.naive_bm25 import byte4
from tsr_gym_envs.lucene_bm25.blocks import LENGTHS, inverse_norms, length_bytes


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
