"""Shortening: whole words, any measure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.protocol import length_of, shorten


def syllables(text):
    return sum(letter in "aeiou" for letter in text)


@pytest.mark.parametrize(
    ("limit", "length", "left"),
    [
        (None, "words", "One, two  three"),
        (3, "words", "One, two  three"),
        (2, "words", "One, two"),
        (1, "words", "One,"),
        (15, "characters", "One, two  three"),
        (14, "characters", "One, two"),
        (8, "characters", "One, two"),
        (7, "characters", "One,"),
        (3, "characters", "One"),
        (1, "characters", "O"),
        (3, f"{__name__}:syllables", "One, two"),
    ],
)
def test_a_text_is_cut_after_a_whole_word(limit, length, left):
    assert shorten("One, two  three", limit, length) == left


@given(st.text(max_size=60), st.integers(1, 20))
def test_what_is_left_is_the_longest_beginning_that_fits(text, limit):
    left = shorten(text, limit)
    assert text.startswith(left)
    words = text.split()
    assert left.split() == words[:limit]
    assert left == text or (not left[-1:].isspace() and len(words) > limit)


@pytest.mark.parametrize("name", ["tokens", "no.such.module:f", "math:nothing"])
def test_an_unknown_measure_is_refused(name):
    with pytest.raises(ConfigError, match="wanted length"):
        length_of(name)
