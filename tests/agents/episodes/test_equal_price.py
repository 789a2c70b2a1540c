"""Matched: plain play that spends what a search spent."""

from functools import partial

import pytest

from tests.agents.worlds import WALKER, lake
from tsr_gym.agents.episodes.equal_price import matched
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import beam, naive
from tsr_gym.tree import Candidate

SEEDS = range(60)


def talkative(requests):
    """Walk at random, and say a token for every letter."""
    return [[Candidate(one.text, (1,) * 9, (2,) * len(one.text)) for one in row] for row in WALKER(requests)]


def grown(strategy, first=0):
    envs = [lake(seed) for seed in SEEDS]
    return search(envs, talkative, strategy, seeds=[first + seed for seed in SEEDS])


def spent(trees, by):
    return sum(getattr(tree.spent, by) for tree in trees) / len(trees)


@pytest.mark.parametrize("by", ["sampled_tokens", "prompt_tokens", "env_steps"])
def test_matched_play_spends_on_average_what_the_search_did(by):
    searched, played = grown(partial(beam, width=2, branching=3)), grown(partial(naive, rollouts=4), 500)
    plain = grown(matched(searched, played, by=by), 1000)
    assert spent(plain, by) == pytest.approx(spent(searched, by), rel=0.12)
    counts = {len(tree.leaves()) for tree in plain}
    assert len(counts) == 2
    assert max(counts) - min(counts) == 1


def test_a_search_that_is_cheaper_than_an_episode_is_matched_by_one():
    played = grown(partial(naive, rollouts=4))
    short = grown(partial(beam, width=1, branching=1, depth=1))
    assert {len(tree.leaves()) for tree in grown(matched(short, played))} == {1}


def test_what_costs_nothing_cannot_be_matched():
    trees = grown(partial(naive, rollouts=1))
    with pytest.raises(ValueError, match="rollouts that spent sampled_tokens, got 60 trees at a price of 0"):
        matched(trees, search([lake(1)], WALKER, naive, seeds=[1]))
    with pytest.raises(ValueError, match="got 0 trees"):
        matched([], trees)
