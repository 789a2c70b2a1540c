"""Beam search, greedy search and lookahead."""

from functools import partial

import numpy as np
import pytest

from tests.agents.worlds import WALKER, cycle, lake, letters, picture, priced, rooms, watch, words_of
from tsr_gym import Candidate, Expand
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam, greedy, lookahead


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_the_world_finds_the_optimum(seed):
    pays, returns = priced(seed)
    ranking = sorted(returns, key=returns.get, reverse=True)
    tree = letters(pays, turns=4).search(cycle("abc"), partial(beam, width=27, branching=3))
    assert [words_of(tree)[end] for end in tree.chosen] == ranking[:27]
    narrow = letters(pays, turns=4).search(cycle("abc"), partial(beam, width=2, branching=3))
    assert narrow.merit(narrow.chosen[0]) <= returns[ranking[0]] + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_each_rank_keeps_what_it_says(seed):
    """Against a beam over plain words."""
    pays, _ = priced(seed)
    total = lambda word: sum(pays[word[:end]] for end in range(1, len(word) + 1))  # noqa: E731
    for rank, worth in (("sum", total), ("merit", total), ("last", pays.__getitem__)):
        members = [""]
        for _ in range(4):
            members = sorted((m + letter for m in members for letter in "abc"), key=worth, reverse=True)[:3]
        tree = letters(pays, turns=4).search(cycle("abc"), partial(beam, width=3, branching=3, rank=rank))
        assert [words_of(tree)[end] for end in tree.chosen] == members
    tree = letters(pays, turns=4, score_of="state").search(cycle("abc"), partial(beam, width=3, branching=3))
    assert [words_of(tree)[end] for end in tree.chosen] == members


@pytest.mark.parametrize("merge", [None, "state", "turns"])
def test_merging_expands_no_state_twice_in_a_turn(merge):
    env = letters({"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.25}, turns=5, bag=True)
    asked = []
    bags = lambda tree, wishes: [[tree.nodes[wish.node].observation for wish in wishes]]  # noqa: E731
    env.search(cycle("abcd"), watch(partial(beam, width=6, branching=4, merge=merge), asked, bags))
    repeated = [len(words) - len(set(words)) for words in asked]
    assert any(repeated) == (merge is None)
    # By price: bb once, ab, bc and bd each in two orders. The six places hold four pairs, or six that differ.
    assert len(set(asked[2])) == (6 if merge else 4)


def test_where_everything_is_lost_the_beam_ends_at_a_dead_end():
    env = letters({"a": 1.0, "b": 2.0}, turns=3, dead=["a", "b"])
    tree = env.search(cycle("ab"), partial(beam, width=1, branching=2))
    assert [words_of(tree)[end] for end in tree.chosen] == ["b"]
    assert len(tree.nodes) == 3


def test_a_beam_that_ends_at_a_success_saves_the_rest_and_chooses_what_solved():
    # x ends the word for little, so that it leaves the beam; y ends it for more, a turn later.
    pays = {"a": 2.0, "b": 3.0, "x": -1.0, "ay": 9.0, "by": 8.0, "y": -5.0}
    env = lambda: letters(pays, ends="xy", turns=4)  # noqa: E731
    first = env().search(cycle("abxy"), partial(beam, width=2, branching=4, until_success=True))
    assert [words_of(first)[end] for end in first.chosen] == ["x", "y"]
    assert len(first.nodes) == 1 + 4
    on = env().search(cycle("abxy"), partial(beam, width=2, branching=4))
    assert len(on.nodes) > len(first.nodes)
    # Where nothing ends the word, it is a beam as any other.
    plain, never = (env().search(cycle("ab"), partial(beam, until_success=until)) for until in (False, True))
    assert [words_of(never)[end] for end in never.chosen] == [words_of(plain)[end] for end in plain.chosen]


PUSHER = RandomPolicy(("Up", "Down", "Left", "Right"), max_actions=2)


def one_rollout(tree, *, branching, depth):
    """Look ahead with one rollout per candidate, each followed by its own loop."""
    here = tree.root
    while not tree.nodes[here].done:
        yield [Expand(here, branching)]
        ends = {child: child for child in tree.children(here)[-branching:]}
        for _ in range(depth):
            wishes = [Expand(end) for end in ends.values() if not tree.nodes[end].done]
            if not wishes:
                break
            yield wishes
            ends = {child: tree.children(end)[-1] if not tree.nodes[end].done else end for child, end in ends.items()}
        chosen = tree.best(list(ends.values()), 1)[0]
        here = next(child for child, end in ends.items() if end == chosen)


@pytest.mark.parametrize(("branching", "depth"), [(4, 2), (2, 0), (3, 1), (1, 3)])
@pytest.mark.parametrize(("world", "policy"), [(rooms, PUSHER), (lake, WALKER)], ids=["Sokoban", "FrozenLake"])
def test_one_rollout_a_candidate_grows_the_trees_of_the_plain_loop(world, policy, branching, depth):
    def grown(strategy):
        trees = search([world(seed) for seed in range(5)], policy, strategy, seeds=range(50, 55))
        return [picture(tree) for tree in trees]

    numbers = {"branching": branching, "depth": depth}
    wanted = grown(partial(one_rollout, **numbers))
    assert grown(partial(lookahead, **numbers)) == wanted
    assert grown(partial(lookahead, **numbers, reduce="max")) == wanted


def coin_after_the_first(requests):
    """Answer a and b at the first node; later c or d, by a coin derived from the tree's seed and the node."""
    first = cycle("ab")

    def coins(tree, wish):
        rng = np.random.default_rng([tree.seed, *tree.branch(wish.node), len(tree.children(wish.node))])
        return [Candidate("cd"[side]) for side in rng.integers(2, size=wish.samples)]

    return [coins(tree, wish) if wish.node else first([(tree, wish)])[0] for tree, wish in requests]


def test_the_mean_of_many_rollouts_estimates_what_the_policy_makes_of_a_candidate():
    """After a, half of the answers pay 3 and half -3; after b, all pay 1. The mean prefers b, the maximum a."""
    pays = {"a": 0.0, "b": 0.0, "ac": 3.0, "ad": -3.0, "bc": 1.0, "bd": 1.0, "c": 0.0, "d": 0.0}

    def followed(seed, reduce):
        env = letters(pays, turns=3, seed=seed)
        strategy = partial(lookahead, branching=2, depth=1, rollouts=12, reduce=reduce, moves=1)
        tree = env.search(coin_after_the_first, strategy)
        return words_of(tree)[tree.chosen[0]]

    # The mean of twelve throws of 3 or -3 exceeds 1 where nine or more are 3, with probability 0.07: 3 of 40, rarely 9.
    assert [followed(seed, "mean") for seed in range(40)].count("b") >= 31
    # All twelve are -3 with probability 1 / 4096.
    assert [followed(seed, "max") for seed in range(40)].count("a") >= 39


def test_a_candidate_that_is_lost_is_followed_only_where_all_are():
    def followed(dead):
        env = letters({"a": 1.0, "b": 5.0}, turns=2, dead=dead)
        tree = env.search(cycle("ab"), partial(lookahead, branching=2, depth=1, rollouts=2))
        return words_of(tree)[tree.chosen[0]]

    assert (followed(["b"]), followed(["a", "b"]), followed([])) == ("ab", "b", "bb")


@pytest.mark.parametrize("depth", [None, 2])
@pytest.mark.parametrize("branching", [1, 2, 5])
def test_greedy_is_a_beam_of_width_1(branching, depth):
    def grown(strategy):
        trees = search([lake(seed) for seed in range(8)], WALKER, strategy, seeds=range(8))
        return [(picture(tree), list(tree.chosen)) for tree in trees]

    narrow = partial(beam, width=1, branching=branching, depth=depth)
    assert grown(partial(greedy, branching=branching, depth=depth)) == grown(narrow)
