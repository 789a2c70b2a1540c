"""Whole episodes: plain play, best-of-N, and playing chosen paths to their ends."""

from functools import partial

import pytest

from tests.agents.worlds import WALKER, cycle, grow_bare, lake, letters, words_of
from tsr_gym import Tree
from tsr_gym.agents.strategies import best_of_n, naive
from tsr_gym.agents.strategies.play_on import play_on

PAYS = {"a": 1.0, "b": 2.0, "x": 0.0}


def ends_of(tree, starts, turns=None):
    """Return a strategy that plays on from some nodes, and the list that will hold the words where it came to."""
    ends = []

    def strategy(view):
        ends.extend((yield from play_on(view, starts, turns)))

    return strategy, ends


@pytest.mark.parametrize(
    ("turns", "wanted"),
    [
        (0, ["a", "", "a", "b", "a"]),
        # The first node has two children already, so the policy continues with the third letter, and x ends the word.
        (1, ["aa", "x", "ab", "ba", "ax"]),
        (2, ["aaa", "x", "aba", "baa", "ax"]),
        (None, ["aaaa", "x", "abaa", "baaa", "ax"]),
    ],
)
def test_every_start_is_continued_once_in_the_order_of_the_starts(turns, wanted):
    env = letters(PAYS, "x", 4)
    env.expand(0, ["a", "b"])
    strategy, ends = ends_of(env.tree, [1, 0, 1, 2, 1], turns)
    rounds = []

    def watched(view):
        for wishes in strategy(view):
            rounds.append([tuple(wish) for wish in wishes])
            yield wishes

    env.search(cycle("abx"), watched)
    words = words_of(env.tree)
    assert [words[end] for end in ends] == wanted
    assert rounds[:1] == ([] if turns == 0 else [[(1, 3), (0, 1), (2, 1)]])
    assert len(rounds) == (3 if turns is None else turns)


def test_what_is_not_open_stays_where_it_is():
    env = letters(PAYS, "x", 4, dead=["b"])
    env.expand(0, ["x", "b"])
    strategy, ends = ends_of(env.tree, [1, 2])
    env.search(cycle("a"), strategy)
    assert ends == [1, 2]
    assert len(env.tree.nodes) == 3


@pytest.mark.parametrize("turns", [50, 400])
def test_a_round_costs_the_same_however_deep_the_tree_is(monkeypatch, turns):
    asked = []
    for method in ("children", "path", "below", "leaves"):
        real = getattr(Tree, method)

        def counted(tree, *args, method=method, real=real):
            asked.append(method)
            return real(tree, *args)

        monkeypatch.setattr(Tree, method, counted)

    def child(tree, parent, number):
        return {"truncated": tree.nodes[parent].depth + 1 == turns}

    grow_bare(partial(naive, rollouts=3), child)
    # The driver asks once per child; the strategy once per end and round, and about nothing else.
    assert set(asked) == {"children"}
    assert len(asked) <= 2 * 3 * turns


@pytest.mark.parametrize("keep", [1, 3, 50])
def test_the_best_by_reward_are_kept_best_first(keep):
    tree = lake(4).search(WALKER, partial(best_of_n, n=12, keep=keep))
    returns = sorted((tree.total(leaf, "reward") for leaf in tree.leaves()), reverse=True)
    assert len(set(returns)) > 1
    assert [tree.total(end, "reward") for end in tree.chosen] == returns[:keep]


def test_paths_that_a_dead_end_stopped_are_not_chosen():
    env = letters({"a": 5.0, "b": 1.0}, turns=2, dead=["a"])
    tree = env.search(cycle("ab"), partial(best_of_n, n=2, keep=2))
    assert [words_of(tree)[end] for end in tree.chosen] == ["ba"]
