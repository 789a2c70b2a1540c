"""Token budget: groups are searched together only far from the limit."""

import pytest

from tsr_gym import Budget
from tsr_gym.agents.runs.config import RunConfig
from tsr_gym.agents.runs.token_budget import Limit, counted, groups_at_once, total_of, update_end


@pytest.mark.parametrize(
    ("left", "sampled", "groups", "least", "wanted"),
    [
        # 100 tokens a group: of 4,000 that are left ten groups may take four times as much each.
        (4000, 1000, 10, 1, 10),
        (3999, 1000, 10, 1, 9),
        (399, 1000, 10, 1, 1),
        (1, 1000, 10, 1, 1),
        # One for every process.
        (399, 1000, 10, 2, 2),
        # Of the first group nothing is known.
        (10_000, 0, 0, 1, 1),
    ],
)
def test_groups_that_are_searched_together_have_four_times_their_mean_left(left, sampled, groups, least, wanted):
    assert groups_at_once([Limit(sampled + left)], spent=sampled, groups=groups, least=least) == wanted


def test_the_narrower_of_two_limits_counts():
    # 100 tokens a group: 5 groups of what may be passed, 10 of what may not.
    soft, hard = Limit(1500, margin=1), Limit(5000)
    assert groups_at_once([soft, hard], spent=1000, groups=10) == 5
    assert groups_at_once([Limit(3000, margin=1), hard], spent=1000, groups=10) == 10


@pytest.mark.parametrize(
    ("prices", "wanted"),
    [
        ({}, 300),
        ({"prompt_price": 0.1}, 300 + 200),
        ({"sampled_price": 0, "prompt_price": 1}, 2000),
        ({"sampled_price": 4, "prompt_price": 0.5}, 1200 + 1000),
    ],
)
def test_tokens_count_at_their_prices(prices, wanted):
    assert counted(Budget(sampled_tokens=300, prompt_tokens=2000), RunConfig(**prices)) == wanted


@pytest.mark.parametrize(
    ("run", "targets", "wanted"),
    [
        (RunConfig(), None, None),
        (RunConfig(total_tokens=900), None, 900),
        # Of the other run's updates two are matched.
        (RunConfig(updates=2), [100, 250, 400], 250),
        (RunConfig(updates=2, total_tokens=200), [100, 250, 400], 200),
        (RunConfig(updates=3, total_tokens=900), [100, 250, 400], 400),
        (RunConfig(updates=0), [100], None),
    ],
)
def test_a_run_ends_at_its_total_or_at_that_of_the_run_that_it_matches(run, targets, wanted):
    assert total_of(run, targets) == wanted


def test_an_update_ends_where_the_matched_one_did_or_after_as_many_tokens_for_each():
    assert [update_end(RunConfig(), [100, 250], update) for update in (0, 1)] == [100, 250]
    assert [update_end(RunConfig(update_tokens=70), None, update) for update in (0, 1)] == [70, 140]
    assert update_end(RunConfig(total_tokens=9), None, 0) is None
