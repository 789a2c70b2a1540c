"""The words for what differs."""

import numpy as np
import pytest

from tsr_gym.foreign.play import MAX_EXCERPT, Fact, difference, text_of


@pytest.mark.parametrize(
    ("came", "words"),
    [
        ([Fact("a", 1), Fact("b", 2.0)], None),
        ([Fact("a", 1), Fact("b", 2.5)], "b differs: wanted 2.0, got 2.5"),
        ([Fact("a", 1), Fact("b", 2.5, "two and a half")], "b differs: wanted 2.0, got two and a half"),
        ([Fact("a", True), Fact("b", 2.5)], "a differs: wanted 1, got True"),
        ([Fact("a", 1), Fact("c", 2.0)], "wanted b, got c"),
        ([Fact("a", 1)], "b is missing"),
        ([Fact("a", 1), Fact("b", 2.0), Fact("c", 0)], "c is new"),
    ],
)
def test_the_first_difference_is_told(came, words):
    assert difference([Fact("a", 1), Fact("b", 2.0)], came) == words


def test_what_reads_alike_and_is_not_equal_is_told_apart():
    words = difference([Fact("a", np.float32(1), "1.0")], [Fact("a", np.float64(1), "1.0")])
    assert words == "a differs: both read 1.0, but their types, bits or orders differ"


def test_long_texts_are_cut_to_where_they_begin_to_differ():
    words = difference([Fact("a", "x" * 5000 + "one")], [Fact("a", "x" * 5000 + "two")])
    assert "xone" in words
    assert "xtwo" in words
    assert len(words) < 3 * MAX_EXCERPT


def test_large_arrays_are_shown_by_their_digest():
    one, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1
    assert text_of(one).startswith("float64 array of shape (5000,) with the digest ")
    assert text_of(one) != text_of(other)
