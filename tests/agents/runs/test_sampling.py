"""Token budget: groups are searched together only far from the limit."""

import pytest

from tsr_gym.agents.runs.sampling import Limit, groups_at_once


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
