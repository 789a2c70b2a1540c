"""Pivots: depths of failures by hand, weights by hand, and a regression against its own conditions."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.agents.episodes.starts.trees import moment_of, seen, words
from tsr_gym.agents.episodes.moments import MomentBank
from tsr_gym.agents.episodes.starts import Begun, Pivots
from tsr_gym.agents.episodes.starts.pivots import MEMORY, depths_of_failures


def failed():
    """Return a tree with the failures aaaa and ab, the latter a proven one, and the success x."""
    # 0 "", 1 a, 2 x!, 3 aa, 4 ab+, 5 aaa, 6 aaaa
    return words((0, "ax"), (1, "ab"), (3, "a"), (5, "a"), dead=("ab",))


def test_a_depth_is_the_share_of_its_episodes_turns():
    # a is one turn of the two of ab, and one of the four of aaaa: that of the shorter counts.
    assert depths_of_failures(failed()) == {1: 0.5, 3: 0.5, 5: 0.75}
    assert depths_of_failures(words((0, "a"), (1, "x"))) == {}


def test_states_that_are_proven_lost_are_no_pivots():
    starts = Pivots()
    # ab is lost and was played on; abb failed at the limit.
    starts.keep([words((0, "a"), (1, "b"), (2, "b"), dead=("ab",), turns_at_most=3)], [])
    assert seen(starts.bank) == ["a"]


def test_pivots_are_drawn_by_likely_recovery_and_a_little_by_depth():
    starts = Pivots(power=2.0)
    starts.keep([failed()], [])
    assert seen(starts.bank) == ["a", "aa", "aaa"]
    # Nothing is known: P is 1/2 everywhere, and depths 1/2, 1/2, 3/4 weigh 4, 4 and 9.
    drawn = Counter(starts.draw(np.random.default_rng(seed)).observation for seed in range(850))
    assert drawn["aaa"] == pytest.approx(450, abs=60)
    assert drawn["a"] == pytest.approx(200, abs=50)
    # Recoveries from late states alone: they are drawn more often.
    late, early = moment_of(starts, "aaa"), moment_of(starts, "a")
    starts.keep([], [Begun(late, 400, 400), Begun(early, 400, 0)])
    assert starts.fit(np.array([0.75]))[0] > 0.7 > 0.3 > starts.fit(np.array([0.5]))[0]
    assert Counter(starts.draw(np.random.default_rng(seed)).observation for seed in range(100))["aaa"] > 80


def test_pivots_of_an_update_replace_older_ones_but_for_an_update_without_failures():
    starts = Pivots()
    starts.keep([failed()], [])
    starts.keep([words((0, "a"), (1, "x"))], [])
    assert seen(starts.bank) == ["a", "aa", "aaa"]
    starts.keep([words((0, "b"), (1, "b"), turns_at_most=2)], [])
    assert seen(starts.bank) == ["b"]


def test_the_last_branches_are_remembered():
    starts = Pivots()
    starts.keep([failed()], [])
    one = moment_of(starts, "a")
    starts.keep([], [Begun(one, 3, 2)])
    assert starts.numbers()["branches"] == [[0.5, 1], [0.5, 1], [0.5, 0]]
    starts.keep([], [Begun(one, MEMORY, 0)])
    assert len(starts.numbers()["branches"]) == MEMORY
    assert {success for _, success in starts.numbers()["branches"]} == {0}


def test_what_is_remembered_survives_json():
    starts, again = Pivots(), Pivots()
    starts.keep([failed()], [])
    starts.keep([], [Begun(moment_of(starts, "aa"), 3, 2)])
    again.bank = MomentBank()
    again.bank.add(starts.bank)
    again.recall(json.loads(json.dumps(starts.numbers())))
    assert again.numbers() == starts.numbers()
    assert again.fit == starts.fit


def test_a_power_below_nothing_is_refused():
    with pytest.raises(ValueError, match="wanted power >= 0"):
        Pivots(power=-1)
