"""Random branching: how many leaves, what they cost, and which tree they belong to."""

import json
from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import PUSHER, Script, grow_bare, letters, rooms, words_of
from tsr_gym import Expand, Tree
from tsr_gym.agents.strategies import naive, random_branching
from tsr_gym.agents.strategies.play_on import branching_trees

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


def expected_turns(turns, nodes, rounds):
    """Return the exact expectation of the turns that one tree takes, by going through everything that can be drawn."""

    def rest(inner, rounds):
        """`inner` counts the nodes with children by the turns that are left at them."""
        if rounds == 0:
            return Fraction(0)
        total = sum(inner.values())
        mean = Fraction(0)
        for draws in product(sorted(inner), repeat=nodes):
            grown = Counter(inner)
            for left in draws:
                grown.update(range(1, left))
            chance = Fraction(1)
            for left in draws:
                chance *= Fraction(inner[left], total)
            mean += chance * (sum(draws) + rest(grown, rounds - 1))
        return mean

    return turns + rest(Counter(range(1, turns + 1)), rounds)


@pytest.mark.parametrize("turns", [1, 2, 3, 6])
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_expected_cost_of_one_round_is_the_formula_and_later_rounds_cost_less(turns, nodes):
    one = expected_turns(turns, nodes, 1)
    assert one == turns + Fraction(nodes * (turns + 1), 2)
    # The published formula with M = 1 and L = 1 counts half a turn less per draw.
    assert one - (turns + Fraction(nodes * turns, 2)) == Fraction(nodes, 2)
    two = expected_turns(turns, nodes, 2)
    assert two <= turns + 2 * Fraction(nodes * (turns + 1), 2)
    assert (two < turns + 2 * Fraction(nodes * (turns + 1), 2)) == (turns > 1)


def test_the_second_round_of_chains_of_two_turns_was_worked_out_by_hand():
    # First draw: the root (2 turns) or the middle (1 turn). Second: after the root there are one root and two middles,
    # 4/3 turns; after the middle again one of each, 3/2.
    assert expected_turns(2, 1, 2) == 2 + Fraction(3, 2) + (Fraction(4, 3) + Fraction(3, 2)) / 2


@pytest.mark.parametrize(
    ("turns", "numbers"),
    [
        (4, {"trees": 1, "nodes": 2, "rounds": 1}),
        (4, {"trees": 3, "nodes": 2, "rounds": 1}),
        (5, {"trees": 2, "nodes": 1, "rounds": 3}),
        (3, {"trees": 1, "nodes": 2, "rounds": 2}),
    ],
)
def test_the_cost_over_many_seeds_is_the_exact_expectation(turns, numbers):
    trees, nodes, rounds = numbers.values()
    taken = []
    for seed in range(800):
        tree, _ = grow_bare(partial(random_branching, **numbers), chain(turns), seed=seed)
        taken.append(len(tree.nodes) - 1)
    exact = trees * float(expected_turns(turns, nodes, rounds))
    error = np.std(taken) / np.sqrt(len(taken))
    assert abs(np.mean(taken) - exact) < 4 * error
    # The published formula is right to half a turn a draw where there is one tree, and far off where there are more.
    published = trees * turns + rounds * nodes * turns / 2
    off = np.mean(taken) - published
    assert abs(off) < rounds * nodes / 2 + 4 * error if trees == 1 else off > 10 * error
