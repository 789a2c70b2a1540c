"""Suffixes: ways to successes read off by hand, and a controller that follows the policy."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.agents.episodes.starts.trees import moment_of, seen, words
from tsr_gym.agents.episodes.moments import MomentBank
from tsr_gym.agents.episodes.starts import Begun, Suffixes
from tsr_gym.agents.episodes.starts.suffixes import turns_left


def tree():
    # 0 "", 1 a, 2 b, 3 aa, 4 ab, 5 aab, 6 aax!, 7 aabx!, 8 abx!, 9 ba
    return words((0, "ab"), (1, "ab"), (3, "bx"), (5, "x"), (4, "x"), (2, "a"))


def test_every_state_on_the_way_to_a_success_has_the_turns_to_the_nearest():
    # From aa the x is one turn away, though aabx goes through it too; a has two, by aax or abx.
    assert turns_left(tree()) == {1: 2, 3: 1, 4: 1, 5: 1}
    # The way to aabx alone.
    assert turns_left(words((0, "a"), (1, "a"), (2, "b"), (3, "x"))) == {1: 3, 2: 2, 3: 1}
    assert turns_left(words((0, "ab"), (1, "ab"))) == {}


def test_starts_are_those_that_many_turns_before_a_success():
    starts = Suffixes()
    starts.keep([tree()], [])
    assert seen(starts.bank) == ["a", "aa", "aab", "ab"]

    def drawn():
        return Counter(starts.draw(np.random.default_rng(seed)).observation for seed in range(60))

    assert starts.turns == 1
    assert set(drawn()) == {"aa", "aab", "ab"}
    assert min(drawn().values()) > 8
    starts.turns = 2
    assert set(drawn()) == {"a"}
    # The nearest there is.
    starts.turns = 7
    assert set(drawn()) == {"a"}


def test_the_start_moves_backwards_above_the_level_and_forwards_otherwise():
    long = words((0, "a"), (1, "a"), (2, "a"), (3, "a"), (4, "x"), turns_at_most=9)
    starts = Suffixes(level=0.5)
    starts.keep([long], [])
    moment = next(iter(starts.bank))
    history = []
    # Both groups of an update count together: 3 of 4, 2 of 4, 2 of 3, ...
    for successes, tries in [((2, 1), 2), ((1, 1), 2), ((2, 2), 2), ((2, 2), 2), ((2, 2), 2), ((2, 2), 2), ((0, 1), 2)]:
        starts.keep([], [Begun(moment, tries, one) for one in successes])
        history.append(starts.turns)
    # Half is not above the level; the longest way known has 4 turns.
    assert history == [2, 1, 2, 3, 4, 4, 3]
    starts.keep([], [])
    assert starts.turns == 3
    for _ in range(5):
        starts.keep([], [Begun(moment, 4, 0)])
    assert starts.turns == 1


def test_a_shorter_way_that_is_found_later_counts():
    starts = Suffixes()
    starts.keep([words((0, "a"), (1, "b"), (2, "x"))], [])
    assert starts.numbers()["left"][moment_of(starts, "a").key] == 2
    starts.keep([words((0, "a"), (1, "x"))], [])
    assert starts.numbers()["left"][moment_of(starts, "a").key] == 1
    assert len(starts.bank) == 2


def test_states_that_the_bank_lost_are_forgotten():
    starts = Suffixes()
    starts.keep([tree()], [])
    starts.bank.keep_last(1)
    starts.keep([], [])
    # The state of most turns was added first, and is gone: of the others all have one turn.
    assert list(starts.numbers()["left"].values()) == [1]


def test_what_is_remembered_survives_json():
    starts, again = Suffixes(), Suffixes()
    starts.keep([tree()], [])
    starts.turns = 2
    again.bank = MomentBank()
    again.bank.add(starts.bank)
    again.recall(json.loads(json.dumps(starts.numbers())))
    assert again.numbers() == starts.numbers()
    with pytest.raises(KeyError):
        again.recall({"turns": 1, "left": {}})


@pytest.mark.parametrize("level", [-0.1, 1.0])
def test_a_level_that_is_no_share_is_refused(level):
    with pytest.raises(ValueError, match="wanted 0 <= level < 1"):
        Suffixes(level=level)
