"""Whole episodes: plain play, the best of N, and random branching."""

import json
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import PUSHER, Script, cycle, grow_bare, letters, rooms, words_of
from tsr_gym import Expand, Tree
from tsr_gym.agents.strategies import best_of_n, naive, random_branching
from tsr_gym.agents.strategies.play_on import branching_trees


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


def test_draws_are_uniform_over_the_root_and_whatever_has_children():
    """One tree of four turns and one draw: it hangs below depth 0, 1, 2 or 3 with probability 1/4 each."""
    depths = Counter()
    for seed in range(1000):
        tree, _ = grow_bare(partial(random_branching, trees=1, nodes=1, rounds=1), chain(4), seed=seed)
        depths[next(node for node in range(len(tree.nodes)) if len(tree.children(node)) == 2)] += 1
    # Four standard deviations of a binomial of 1000 and 1/4 are 55.
    assert all(abs(depths[depth] - 250) < 55 for depth in range(4))
