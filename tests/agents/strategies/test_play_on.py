"""Whole episodes: plain play, the best of N, and random branching."""

import json
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import PUSHER, WALKER, Script, cycle, grow_bare, lake, letters, rooms, words_of
from tsr_gym import Expand, Tree
from tsr_gym.agents.strategies import best_of_n, naive, random_branching
from tsr_gym.agents.strategies.play_on import branching_trees, play_on

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
    assert (ends, len(env.tree.nodes)) == ([1, 2], 3)


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


@pytest.mark.parametrize("keep", [1, 3, 12])
def test_the_best_by_reward_are_kept_best_first(keep):
    tree = lake(4).search(WALKER, partial(best_of_n, n=12, keep=keep))
    returns = sorted((tree.total(leaf, "reward") for leaf in tree.leaves()), reverse=True)
    assert len(set(returns)) > 1
    assert [tree.total(end, "reward") for end in tree.chosen] == returns[:keep]


def test_paths_that_a_dead_end_stopped_are_not_chosen():
    env = letters({"a": 5.0, "b": 1.0}, turns=2, dead=["a"])
    tree = env.search(cycle("ab"), partial(best_of_n, n=2, keep=2))
    assert [words_of(tree)[end] for end in tree.chosen] == ["ba"]


NUMBERS = st.fixed_dictionaries({"trees": st.integers(1, 4), "nodes": st.integers(1, 4), "rounds": st.integers(0, 3)})


def chain(turns):
    """Return a policy that ends every episode after a number of turns."""
    return lambda tree, parent, number: {"truncated": tree.nodes[parent].depth + 1 == turns}


def by_luck(tree, parent, number):
    """End an episode with probability 0.3 a turn; one node in ten is a dead end."""
    luck = np.random.default_rng([tree.seed, *tree.branch(parent), number]).random()
    return {"terminated": luck < 0.3, "info": {"dead_end": "marked"} if luck > 0.9 else {}}


@given(numbers=NUMBERS, seed=st.integers(0, 1000), turns=st.integers(1, 6))
def test_there_are_as_many_leaves_as_published_however_long_the_episodes_are(numbers, seed, turns):
    m, n, rounds = numbers["trees"], numbers["nodes"], numbers["rounds"]
    for child in (chain(turns), by_luck):
        tree, chosen = grow_bare(partial(random_branching, **numbers), child, seed=seed)
        assert len(tree.leaves()) == m * (rounds * n + 1)
        assert chosen is None
        leaves = branching_trees(tree, **numbers)
        assert [len(group) for group in leaves] == [rounds * n + 1] * m
        assert sorted(leaf for group in leaves for leaf in group) == sorted(tree.leaves())


@given(numbers=NUMBERS, seed=st.integers(0, 1000))
def test_a_tree_has_only_the_root_in_common_with_the_others(numbers, seed):
    tree, _ = grow_bare(partial(random_branching, **numbers), by_luck, seed=seed)
    nodes = [{node for leaf in group for node in tree.path(leaf)[1:]} for group in branching_trees(tree, **numbers)]
    assert sum(len(group) for group in nodes) == len(tree.nodes) - 1
    # The first chain of every tree begins with one of the first M children of the root, in order.
    assert [min(group) for group in nodes] == list(tree.children(0))[: numbers["trees"]]


@pytest.mark.parametrize("name", ["random_branching", "random_branching_of_one_turn"])
def test_the_trees_of_the_golden_cases_are_told_apart_also_after_loading(name, tmp_path):
    case = json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())
    env = letters(case["pays"], case["ends"], case["turns"], seed=case.get("seed", 0))
    env.search(Script(case["says"]), partial(random_branching, **case["numbers"]))
    env.tree.save(tmp_path / "tree.jsonl")
    for tree in (env.tree, Tree.load(tmp_path / "tree.jsonl")):
        words = words_of(tree)
        found = branching_trees(tree, **case["numbers"])
        assert [[words[leaf] for leaf in group] for group in found] == case["trees"]


def test_trees_below_a_played_turn_are_told_apart_in_the_view():
    env = rooms(2)
    env.play(PUSHER([(env.tree, Expand(0))])[0][0])
    view = env.search(PUSHER, partial(random_branching, trees=2, nodes=2, rounds=2))
    leaves = branching_trees(view, trees=2, nodes=2, rounds=2)
    assert sorted(leaf for group in leaves for leaf in group) == sorted(view.leaves())


@pytest.mark.parametrize("wrong", [{"trees": 3}, {"nodes": 1}, {"rounds": 1}, {"rounds": 3}])
def test_a_tree_of_other_numbers_is_refused(wrong):
    numbers = {"trees": 2, "nodes": 2, "rounds": 2}
    tree, _ = grow_bare(partial(random_branching, **numbers), chain(4), seed=5)
    with pytest.raises(ValueError, match="wanted a tree of random_branching with"):
        branching_trees(tree, **(numbers | wrong))


def test_no_rounds_are_plain_rollouts():
    wanted, _ = grow_bare(partial(naive, rollouts=3), chain(4))
    tree, _ = grow_bare(partial(random_branching, trees=3, rounds=0), chain(4))
    assert [node.parent for node in tree.nodes] == [node.parent for node in wanted.nodes]


def test_draws_are_uniform_over_the_root_and_whatever_has_children():
    """One tree of four turns and one draw: it hangs below depth 0, 1, 2 or 3 with probability 1/4 each."""
    depths = Counter()
    for seed in range(1000):
        tree, _ = grow_bare(partial(random_branching, trees=1, nodes=1, rounds=1), chain(4), seed=seed)
        depths[next(node for node in range(len(tree.nodes)) if len(tree.children(node)) == 2)] += 1
    # Four standard deviations of a binomial of 1000 and 1/4 are 55.
    assert all(abs(depths[depth] - 250) < 55 for depth in range(4))
