"""The statistics of a Monte Carlo tree search, by hand."""

from math import exp

import pytest

from tests.agents.worlds import grow_bare
from tsr_gym import Candidate
from tsr_gym.agents.strategies.puct import Rules, Visits

RULES = {"c": 1.25, "k": 2.0, "alpha": 0.5, "prior": "mean", "temperature": 1.0}
RULES |= {"value": None, "backup": "mean", "merge": None}
LOGPROBS = [(-1.0,), (-1.0, -3.0), (-0.5, -0.5, -0.5)]


def grown(**rules):
    """Return the visits of a tree of three candidates, of scores 1, 2 and 3, and below the last a turn of score -1."""

    def child(tree, parent, number):
        return {"score": -1.0 if parent else number + 1.0, "candidate": Candidate("", logprobs=LOGPROBS[number])}

    tree, _ = grow_bare(lambda tree: iter([[(0, 3)], [(3, 1)]]), child)
    return Visits(tree, Rules(**(RULES | rules)))


@pytest.mark.parametrize(
    ("rules", "logits"),
    [
        ({"prior": "sum"}, [-1, -4, -1.5]),
        ({"prior": "mean"}, [-1, -2, -0.5]),
        ({"prior": "sum", "temperature": 2.0}, [-0.5, -2, -0.75]),
        ({"prior": "uniform"}, [0, 0, 0]),
    ],
)
def test_priors_are_a_softmax_of_what_the_policy_thought(rules, logits):
    visits = grown(**rules)
    visits.enter(0)
    for leaf in (1, 2, 3):
        visits.await_candidate([0])
        visits.add_candidate([0], leaf)
    total = sum(map(exp, logits))
    assert visits._seen[0].priors == pytest.approx([exp(logit) / total for logit in logits])


@pytest.mark.parametrize(
    ("backup", "wanted"),
    [
        # Paths are worth 1, 2, 3 and, one turn further, 3 - 1.
        ("mean", [(1 + 2 + 3 + 2) / 4, 1, 2, (3 + 2) / 2, 2]),
        # What is known below the third candidate replaces what it looked worth itself.
        ("max", [2, 1, 2, 2, 2]),
    ],
)
def test_returns_are_backed_up_to_every_node_on_the_way(backup, wanted):
    visits = grown(backup=backup)
    visits.enter(0)
    for path, leaf in (([0], 1), ([0], 2), ([0], 3), ([0, 3], 4)):
        visits.await_candidate(path)
        visits.add_candidate(path, leaf)
        visits.back_up([*path, leaf], leaf)
    assert [visits.quality(node) for node in range(5)] == wanted
    assert [visits._seen[node].visits for node in range(5)] == [4, 1, 1, 2, 1]
    assert visits.most_visited(0) == 3
    assert visits.end_of_most_visited(0) == 4


def test_a_simulation_waits_where_everything_is_under_way():
    visits = grown(k=1.0, alpha=0.0)
    visits.enter(0)
    walk = visits.walk(0)
    assert walk == ([0], True)
    visits.await_candidate(walk.path)
    assert visits.walk(0) is None
    visits.add_candidate(walk.path, 1)
    visits.back_up([0, 1], 1)
    assert visits.walk(0) == ([0, 1], True)
