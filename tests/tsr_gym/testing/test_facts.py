"""Fingerprints: copies have equal ones, whatever the type, and a change anywhere gives another."""

import copy
import random
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tsr_gym.own_process import run_python
from tsr_gym.testing.facts import fingerprint


@dataclass
class Box:
    content: object
    label: str = ""


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class ArrayOfAnotherLibrary:
    def __init__(self, numbers):
        self._numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self._numbers)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ARRAYS = st.lists(st.integers(0, 255), min_size=1).map(lambda numbers: np.array(numbers, np.uint8))
VALUES = st.recursive(
    LEAVES | ARRAYS | st.frozensets(st.text()),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.text(), inner),
        st.lists(inner).map(deque),
        st.builds(Box, inner, st.text()),
        st.builds(Slotted, inner, inner),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_copy_has_the_same_fingerprint(value):
    assert fingerprint(copy.deepcopy(value)) == fingerprint(value)


@given(VALUES, LEAVES, LEAVES)
def test_a_change_of_one_leaf_shows(value, left, right):
    same = repr(left) == repr(right)
    assert (fingerprint([value, Box(left)]) == fingerprint([value, Box(right)])) is same


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 2], [2, 1]),
        ([1], (1,)),
        (1, 1.0),
        (0.0, -0.0),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (Box(1), Slotted(1, "")),
        ({"a": 1}, {"a": 1, "b": None}),
        (np.random.default_rng(1), np.random.default_rng(2)),
        (random.Random(1), random.Random(2)),
        (ArrayOfAnotherLibrary([1, 2]), ArrayOfAnotherLibrary([1, 3])),
        ({1, 2}, {1, 3}),
    ],
)
def test_different_values_have_different_fingerprints(left, right):
    assert fingerprint(left) != fingerprint(right)
    assert fingerprint(left) == fingerprint(copy.deepcopy(left))


def test_a_generator_counts_by_where_it_stands():
    rng = np.random.default_rng(5)
    before = fingerprint(Box(rng))
    number = rng.random()
    assert fingerprint(Box(rng)) != before
    again = np.random.default_rng(5)
    assert fingerprint(Box(again)) == before
    assert again.random() == number


def test_a_value_that_holds_itself_has_a_fingerprint():
    ring = [1]
    ring.append(ring)
    right = [2]
    right.append(right)
    assert fingerprint(ring) != fingerprint(right)


def test_beyond_the_limits_only_the_ends_of_a_list_count():
    long, changed = list(range(1000)), list(range(1000))
    changed[500] = -1
    assert fingerprint(long) != fingerprint(changed)
    assert fingerprint(long, max_items=100) == fingerprint(changed, max_items=100)
    changed[-1] = -1
    assert fingerprint(long, max_items=100) != fingerprint(changed, max_items=100)


def test_other_processes_agree():
    code = (
        "from tsr_gym.testing.facts import fingerprint\n"
        "print(fingerprint({'words': {'apple', 'pear', 'fig', 'plum'}, 'more': (1.5, None, object)}))"
    )
    assert len({run_python(code, hash_seed=seed) for seed in "012"}) == 1
