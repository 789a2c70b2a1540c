"""Starts: chosen by name, and how a group went that began at one."""

import numpy as np
import pytest

from tests.agents.worlds import letters
from tsr_gym import Candidate, ConfigError
from tsr_gym.agents.episodes.start_states import Begun, MomentBank, Starts, States, choose_starts, moments_at
from tsr_gym.agents.episodes.trajectory import Group, Trajectory


class Deepest:
    """Starts of a user's own: the last states of an update's trees."""

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


def words(*turns, turns_at_most=4, dead=()):
    """Return a tree that holds some words, node by node: parent's index and letters. A word that ends in x succeeds."""
    env = letters({"a": 0.0, "b": 0.0, "x": 1.0}, ends="x", turns=turns_at_most, dead=dead)
    for parent, letters_tried in turns:
        env.expand(parent, [Candidate(letter) for letter in letters_tried])
    return env.tree


def test_starts_are_chosen_by_name_with_their_numbers():
    assert isinstance(choose_starts("states"), States)
    own = choose_starts("tests.agents.episodes.test_start_states:Deepest(most=5)")
    assert isinstance(own, Starts)
    assert own.most == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state", "did you mean states"),
        ("Begun", "there is no kind of moments 'Begun'"),
        ("states(level=0.5)", "has no"),
        ("tests.agents.episodes.test_start_states:Deepest(least=5)", "has no"),
        ("collections:Counter", "makes a Counter"),
    ],
)
def test_starts_that_do_not_exist_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        choose_starts(text)


def test_plain_play_counts_where_there_is_some_and_search_otherwise():
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
    starts = choose_starts("states")
    starts.keep([tree], [])
    assert len(starts.bank) > 0
    drawn = [[starts.draw(np.random.default_rng(seed)).key for seed in range(9)] for _ in range(2)]
    assert drawn[0] == drawn[1]
