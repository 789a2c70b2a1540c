"""Lookahead against a twin that is written for one rollout, and what several rollouts change."""

from functools import partial

import numpy as np
import pytest

from tests.agents.worlds import WALKER, cycle, lake, letters, picture, rooms, words_of
from tsr_gym import Candidate, Expand
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import lookahead

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
    """Say a and b at the first node; later c or d, by a coin that the tree's seed and the place throw."""
    first = cycle("ab")

    def coins(tree, wish):
        rng = np.random.default_rng([tree.seed, *tree.branch(wish.node), len(tree.children(wish.node))])
        return [Candidate("cd"[side]) for side in rng.integers(2, size=wish.samples)]

    return [coins(tree, wish) if wish.node else first([(tree, wish)])[0] for tree, wish in requests]


def test_the_mean_of_many_rollouts_estimates_what_the_policy_makes_of_a_candidate():
    """After a, half of what is said pays 3 and half -3; after b, all pays 1. The mean prefers b, the maximum a."""
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

    assert followed(["b"]) == "ab"
    assert followed(["a", "b"]) == "b"
    assert followed([]) == "bb"
