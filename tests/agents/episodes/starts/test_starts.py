"""Starts: chosen by name, and how a group went that began at one."""

import numpy as np
import pytest

from tests.agents.episodes.starts.trees import words
from tsr_gym import ConfigError
from tsr_gym.agents.episodes.moments import MomentBank, moments_at
from tsr_gym.agents.episodes.starts import Begun, Fatal, Pivots, Starts, States, Suffixes, choose_starts
from tsr_gym.agents.episodes.trajectory import Group, Trajectory


class Deepest:
    """A kind of one's own: the last states of an update's trees."""

    def __init__(self, *, most=3):
        self.bank = MomentBank()
        self.most = most

    def keep(self, trees, begun):
        self.bank.keep_last(self.most)

    def draw(self, rng):
        return next(iter(self.bank))

    def numbers(self):
        return {}

    def recall(self, numbers):
        assert not numbers


def test_kinds_are_chosen_by_name_with_their_numbers():
    made = [choose_starts(name) for name in ("states", "suffixes", "fatal", "pivots")]
    assert [type(one) for one in made] == [States, Suffixes, Fatal, Pivots]
    chosen = choose_starts("suffixes(level=0.25)")
    assert isinstance(chosen, Suffixes)
    assert chosen.level == 0.25
    own = choose_starts("tests.agents.episodes.starts.test_starts:Deepest(most=5)")
    assert isinstance(own, Starts)
    assert own.most == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suffix", "did you mean suffixes"),
        ("Begun", "there is no kind of moments 'Begun'"),
        ("suffixes(level=2)", "wanted 0 <= level < 1"),
        ("pivots(level=0.5)", "has no"),
        ("collections:Counter", "makes a Counter"),
    ],
)
def test_a_kind_that_is_none_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        choose_starts(text)


def test_plain_play_tells_how_a_group_went_and_search_where_there_is_none():
    tree = words((0, "a"), (1, "x"))
    moment = moments_at(tree, [1])[1]

    def episode(success, selected_by, finished=True):
        return Trajectory((), success, 0.0, selected_by, finished=finished)

    searched = [episode(True, "beam"), episode(True, "beam"), episode(False, "beam", finished=False)]
    plain = [episode(False, "naive"), episode(True, "naive"), episode(False, "naive")]
    assert Begun.of(moment, Group(0, (*searched, *plain))) == Begun(moment, 3, 1)
    assert Begun.of(moment, Group(0, tuple(searched))) == Begun(moment, 2, 2)


def test_what_is_drawn_derives_from_the_generator_alone():
    tree = words((0, "ab"), (1, "ab"), (3, "bx"), (4, "x"), (2, "ab"), dead=("bb",), turns_at_most=3)
    for kind in ("states", "suffixes", "fatal", "pivots"):
        starts = choose_starts(kind)
        starts.keep([tree], [])
        assert len(starts.bank) > 0, kind
        drawn = [[starts.draw(np.random.default_rng(seed)).key for seed in range(9)] for _ in range(2)]
        assert drawn[0] == drawn[1]
