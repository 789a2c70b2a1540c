"""Preferences and step values of small trees, worked out by hand."""

from math import isnan

import pytest

from tests.agents.episodes.test_trajectory import tree_of
from tests.agents.learning.advantages.forests import Sampled, leaf, path
from tests.agents.learning.test_batch import episode
from tests.agents.learning.test_batch import turn as turn_of
from tsr_gym import Candidate, Node
from tsr_gym.agents.bridges.export import Pair, StepValue, mean_return, merit, sibling_pairs, step_values
from tsr_gym.agents.episodes.trajectory import Group


def sampled(parent, depth, ids, reward, *, score=None, end=False, prompt=None):
    """Return a node whose candidate has some token ids, sampled with log-probability -0.1 times the id."""
    prompt = (100 + parent,) if prompt is None else prompt
    candidate = Candidate(str(ids), prompt, tuple(ids), tuple(-0.1 * number for number in ids))
    return Node(parent, depth, candidate, "", reward, reward if score is None else score, end, False, {}, None)


def small_tree():
    """Node 0 has children 1, 2 and 3, node 1 the children 4 and 5; 4, 5 and 3 are ends, 2 was left."""
    return tree_of(
        sampled(0, 1, [1], 1.0, score=5.0),
        sampled(0, 1, [2], 0.0, score=9.0),
        sampled(0, 1, [3], 2.0, score=7.0, end=True),
        sampled(1, 2, [4, 4], 3.0, score=1.0, end=True),
        sampled(1, 2, [5], -1.0, score=2.0, end=True),
    )


def kinds(pairs):
    return [(pair.chosen_ids, pair.rejected_ids) for pair in pairs]


def test_merit_prefers_the_higher_score():
    tree = small_tree()
    assert sibling_pairs(tree) == [
        Pair((100,), (2,), (1,), (-0.2,), (-0.1,), gap=4.0, node=0),
        Pair((101,), (5,), (4, 4), (-0.5,), (-0.4, -0.4), gap=1.0, node=1),
    ]


def test_mean_returns_prefer_better_ends_and_a_left_branch_has_no_end():
    # Through node 1: returns 4 and 0, mean 2; node 3 has 2 as well. Node 2 was left.
    tree = small_tree()
    worth = mean_return(tree)
    assert worth[:2] == [2.0, 2.0]
    assert isnan(worth[2])
    assert worth[3:] == [2.0, 4.0, 0.0]
    # Equal worth is no preference.
    assert kinds(sibling_pairs(tree, worth=mean_return)) == [((4, 4), (5,))]


def test_noise_is_no_preference():
    tree = tree_of(sampled(0, 1, [1], 0.1 + 0.2, end=True), sampled(0, 1, [2], 0.3, end=True))
    assert sibling_pairs(tree, worth=mean_return) == []


@pytest.mark.parametrize(
    ("pairing", "expected"),
    [
        ("extremes", [((2,), (1,))]),
        ("against_best", [((2,), (3,)), ((2,), (1,))]),
        ("all", [((2,), (3,)), ((2,), (1,)), ((3,), (1,))]),
    ],
)
def test_each_pairing_compares_its_pairs(pairing, expected):
    pairs = sibling_pairs(small_tree(), pairing=pairing)
    assert kinds(pair for pair in pairs if pair.node == 0) == expected


def test_a_margin_drops_small_differences():
    # At node 0 by 2, 4 and 2; at node 1 by 1.
    assert [pair.gap for pair in sibling_pairs(small_tree(), pairing="all", margin=1.5)] == [2.0, 4.0, 2.0]
    assert [pair.gap for pair in sibling_pairs(small_tree(), pairing="all", margin=3.0)] == [4.0]


def test_only_answers_to_the_same_prompt_are_compared_and_each_once():
    tree = tree_of(
        sampled(0, 1, [1], 0.0, prompt=(7,)),
        sampled(0, 1, [2], 1.0, prompt=(7,)),
        sampled(0, 1, [2], 5.0, prompt=(7,)),
        sampled(0, 1, [3], 9.0, prompt=(8,)),
        sampled(0, 1, [], 3.0, prompt=(7,)),
    )
    # A repeated candidate counts with its first node, and a candidate without tokens cannot be learned from.
    assert [(pair.prompt_ids, pair.gap) for pair in sibling_pairs(tree)] == [((7,), 1.0)]


def test_a_single_candidate_has_no_pair():
    assert sibling_pairs(tree_of(sampled(0, 1, [1], 1.0), sampled(1, 2, [2], 1.0))) == []
    assert isnan(merit(tree_of())[0])


def tree():
    """Turn 1 leads to 2, worth 0, and to 3, worth 4; turn 4 was left."""
    left = path(Sampled(4, 9.0), finished=False)
    return Group(50, (leaf([1, 2], 0.0), leaf([1, 3], 4.0), left))


def test_every_turn_has_a_row_with_its_tokens_and_its_value():
    assert step_values([tree()]) == [
        StepValue(50, (1,), (11, 12), 2.0, 2, 0),
        StepValue(50, (1, 11, 12, 2), (12, 13), 0.0, 1, 1),
        StepValue(50, (1, 11, 12, 2), (13, 14), 4.0, 1, 1),
    ]


def test_a_left_branch_can_count_with_its_return():
    assert step_values([tree()], unfinished="return")[-1] == StepValue(50, (1,), (14, 15), 9.0, 1, 0)


def test_tasks_are_those_of_the_groups_also_where_a_group_has_no_tokens():
    silent = Group(51, (episode(turn_of([1], [], 0.0)),))
    labels = step_values([Group(49, (leaf([1], 3.0),)), silent, tree()])
    assert [row.task for row in labels] == [49, 50, 50, 50]


def test_values_are_means_over_children_or_over_leaves():
    group = Group(1, (leaf([1, 2, 3], 0.0), leaf([1, 2, 4], 2.0), leaf([1, 5], 4.0)))
    assert step_values([group])[0].value == 2.5
    assert step_values([group], backup="leaf_mean")[0].value == pytest.approx(2.0)


def test_a_prompt_that_begins_anew_is_that_of_the_turn_alone():
    group = Group(1, (episode(turn_of([1, 2], [3], 0.0, -1), turn_of([7], [8, 9], 1.0, -1, -1)),))
    assert step_values([group]) == [StepValue(1, (1, 2), (3,), 1.0, 1, 0), StepValue(1, (7,), (8, 9), 1.0, 1, 1)]
