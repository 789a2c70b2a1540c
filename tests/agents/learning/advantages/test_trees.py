"""Tree-GRPO, TreePO, TreeRL and `tree_backup`, worked out by hand."""

from dataclasses import replace
from functools import partial
from math import exp, sqrt
from operator import mul

import pytest
import torch

from tests.agents.learning.advantages.forests import (
    Sampled,
    batch_of,
    by_trajectory,
    by_turn,
    leaf,
    path,
    random_groups,
)
from tests.conftest import seeds
from tsr_gym.agents.learning.advantages import (
    Backup,
    gigpo,
    grpo,
    rloo,
    tree_backup,
    tree_grpo,
    tree_value_targets,
    treepo,
    treerl,
)
from tsr_gym.agents.learning.advantages.turn_table import back_up, rewards_of, table_of
from tsr_gym.agents.learning.batch import collate


def forest():
    """A tree of three leaves, two of them below one turn, and a tree of one leaf."""
    return batch_of([leaf([1, 2], 0.0), leaf([1, 3], 2.0), leaf([4], 4.0), leaf([1], 6.0, tree=1)])


# Within the first tree: mean 2, squares 4 + 0 + 4 over 2, deviation 2. Over all: mean 3, squares 9 + 1 + 1 + 9 over 3.
INTRA = [-1.0, 0.0, 1.0, 0.0]
INTER = [distance / sqrt(20 / 3) for distance in (-3, -1, 1, 3)]


def test_tree_grpo_by_hand():
    batch = forest()
    expected = [intra + inter for intra, inter in zip(INTRA, INTER, strict=True)]
    assert by_trajectory(batch, tree_grpo(batch)) == pytest.approx(expected, abs=1e-5)
    assert by_trajectory(batch, tree_grpo(batch, inter=0.0)) == pytest.approx(INTRA, abs=1e-5)
    twice = [2 * inter for inter in INTER]
    assert by_trajectory(batch, tree_grpo(batch, intra=0.0, inter=2.0)) == pytest.approx(twice, abs=1e-5)
    assert by_trajectory(batch, tree_grpo(batch, inter=0.0, alone="raw"))[3] == 6.0
    once = by_turn(batch, tree_grpo(batch, inter=0.0, prefix="once"))
    assert once == [pytest.approx([-1, -1], abs=1e-5), [0, 0], pytest.approx([1], abs=1e-5), [0]]


def test_returns_that_differ_by_rounding_are_equal():
    """Three ways to earn 10.6; in single precision their sums differ, and a deviation of rounding is no deviation."""
    ways = ([1.0, -0.1, -0.3, 10.0], [-0.2, -0.3, -0.2, -0.1, 11.4], [-0.3, -0.2, 1.0, -0.3, -0.1, 10.5])
    batch = batch_of([path(*[(-1, reward) for reward in way]) for way in ways], [path((-1, 1.0)), path((-1, 2.0))])
    assert by_trajectory(batch, tree_grpo(batch, inter=0.0))[:3] == [0.0] * 3


# Below the prompt 0, 3, 3, 6; below turn 1 the first three; below turn 2 the second and third, which are equal.
TREEPO_LEAVES = [leaf([1, 3], 0.0), leaf([1, 2, 4], 3.0), leaf([1, 2, 5], 3.0), leaf([6], 6.0)]


def test_treepo_by_hand():
    # Mean 3 of all, 2 below turn 1, 3 below turn 2.
    batch = batch_of(TREEPO_LEAVES)
    actual = by_trajectory(batch, treepo(batch, whiten=False))
    assert actual == pytest.approx([(-3 - 2) / 2, (0 + 1 + 0) / 3, (0 + 1 + 0) / 3, 3])
    actual = by_trajectory(batch, treepo(batch, whiten=False, weighting="size"))
    assert actual == pytest.approx([(4 * -3 + 3 * -2) / 7, (0 + 3 * 1 + 0) / 9, (0 + 3 * 1 + 0) / 9, 3])
    actual = by_trajectory(batch, treepo(batch, whiten=False, drop_flat=True))
    assert actual == pytest.approx([-2.5, 0.5, 0.5, 3])
    batch = batch_of([leaf([1], 2.0), leaf([2], 2.0)])
    assert by_trajectory(batch, treepo(batch, whiten=False, drop_flat=True)) == [0, 0]
    alone = batch_of([leaf([1], 2.0)])
    assert by_trajectory(alone, treepo(alone, whiten=False)) == [0]
    assert by_trajectory(alone, treepo(alone, whiten=False, alone="raw")) == [2]


# Leaves 0, 3, 6, all but the last below turn 1; less the mean of the others: -4.5, 0, 4.5.
TREERL_LEAVES = [leaf([1, 2], 0.0), leaf([1, 3], 3.0), leaf([4], 6.0)]


def test_treerl_by_hand():
    # V of 1 is -2.25, of 2 is -4.5, of 3 is 0, of 4 is 4.5, of the root 0.
    # Twice V for first turns; -4.5 - 2.25 and 0 + 2.25 below.
    batch = batch_of(TREERL_LEAVES)
    assert by_turn(batch, treerl(batch, prefix=0.0)) == [[-4.5, -6.75], [-4.5, 2.25], [9.0]]
    # Of 2: its distances from the root, -4.5, and from its parent, -2.25, have the mean -3.375.
    actual = by_turn(batch, treerl(batch, local="ancestors", prefix=0.0))
    assert actual == [pytest.approx([-4.5, -4.5 - 3.375]), pytest.approx([-4.5, 0 + 1.125]), pytest.approx([9.0])]
    # V of the five steps in the batch: -2.25, -4.5, -2.25, 0, 4.5: mean -0.9.
    actual = by_turn(batch, treerl(batch, recentre="step", prefix=0.0))
    assert actual[2] == pytest.approx([4.5 + 0.9 + 4.5])


def walked(group, power):
    """Return the advantages by walking: leaves below every prefix, plain means."""
    leaves = [(each.tree, tuple(turn.node for turn in each.turns), each.total_reward) for each in group.trajectories]
    total = sum(worth for *_, worth in leaves)
    centred = [worth - (total - worth) / (len(leaves) - 1) if len(leaves) > 1 else 0.0 for *_, worth in leaves]

    def value(tree, prefix):
        inside = [not prefix or (its == tree and nodes[: len(prefix)] == prefix) for its, nodes, _ in leaves]
        return sum(map(mul, centred, inside)) / sum(inside), sum(inside)

    actual = []
    for tree, nodes, _ in leaves:
        turns = []
        for depth in range(1, len(nodes) + 1):
            here, count = value(tree, nodes[:depth])
            turns.append((here - value(tree, ())[0] + here - value(tree, nodes[: depth - 1])[0]) / count**power)
        actual.append(turns)
    return actual


@pytest.mark.parametrize("seed", seeds(2, 8))
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_random_forests_against_a_walk(seed, power):
    groups = random_groups(seed)
    actual = by_turn(collate(groups), treerl(collate(groups), prefix=power))
    expected = [turns for group in groups for turns in walked(group, power)]
    assert [pytest.approx(turns, abs=1e-4) for turns in expected] == actual


# Below the root 1 and 5; below 1 the nodes 2 and 3; below 3 the node 4 alone.
LEAVES = [leaf([1, 2], 0.0), leaf([1, 3, 4], 4.0), leaf([5], 5.0)]
ALL = {"prefix": 0.0}


def test_candidates_are_compared_with_siblings_and_shared_turns_count_by_their_probability_or_once():
    # V: 2 is 0, 3 and 4 are 4, 1 is 2, 5 is 5. Against the others: 1 has 2 - 5, 5 has 5 - 2, 2 has 0 - 4, 3 has 4 - 0.
    # 4 has no sibling: it continues 3.
    batch = batch_of(LEAVES)
    assert by_turn(batch, tree_backup(batch, **ALL)) == [[-3, -4], [-3, 4, 4], [3]]
    assert by_turn(batch, tree_backup(batch, centre="mean", **ALL)) == [[-1.5, -2], [-1.5, 2, 2], [1.5]]
    assert by_turn(batch, tree_backup(batch, only_child="zero", **ALL)) == [[-3, -4], [-3, 4, 0], [3]]
    # Three leaves. First turns are one half each, shared by two leaves or by one; below the first, each again one half
    # of its half, and the only child as much as its parent: 3 / 4, 3 / 2 and 3 / 4 of the advantages.
    assert by_turn(batch, tree_backup(batch)) == [[-2.25, -3], [-2.25, 3, 3], [4.5]]
    assert by_turn(batch, tree_backup(batch, prefix=1.0)) == [[-1.5, -4], [-1.5, 4, 4], [3]]


def test_turns_below_those_that_were_followed_count_for_those_that_were_left():
    # Of two first turns one is left. Second turns are those of the other: one half each, as the first ones are.
    batch = batch_of([left([1]), played([2, 3]), played([2, 4], end=1.0)])
    actual, once = by_turn(batch, tree_backup(batch)), by_turn(batch, tree_backup(batch, prefix=1.0))
    assert actual == [pytest.approx([1.5 * value for value in turns]) for turns in once]


def test_children_count_equally_unless_leaves_are_to_count_and_first_turns_are_siblings():
    # 1 has the children 2, with leaves 0 and 2, and 5 with 4: (1 + 4) / 2 or (0 + 2 + 4) / 3.
    batch = batch_of([leaf([1, 2, 3], 0.0), leaf([1, 2, 4], 2.0), leaf([1, 5], 4.0), leaf([6], 0.0)])
    assert by_turn(batch, tree_backup(batch, **ALL))[3] == [-2.5]
    assert by_turn(batch, tree_backup(batch, backup="leaf_mean", **ALL))[3] == [-2.0]
    batch = batch_of([leaf([1], 0.0), leaf([1], 2.0, tree=1), leaf([2], 4.0, tree=1)])
    assert by_turn(batch, tree_backup(batch, **ALL)) == [[-3], [0], [3]]


def test_children_can_be_weighted_by_score_or_surprisal():
    first = [path((1,), Sampled(2, 0.0, score=1.0, logprob=-3.0)), path((1,), Sampled(3, 8.0, score=2.0, logprob=-1.0))]
    batch = batch_of([*first, path((4, 0.0))])
    share = exp(2 / 0.5) / (exp(1 / 0.5) + exp(2 / 0.5))
    by_score = tree_backup(batch, backup="child_softmax", by="score", tau=0.5, **ALL)
    assert by_turn(batch, by_score)[2] == pytest.approx([-8 * share])
    share = exp(1) / (exp(3) + exp(1))
    by_surprisal = tree_backup(batch, backup="child_softmax", **ALL)
    assert by_turn(batch, by_surprisal)[2] == pytest.approx([-8 * share])


def test_what_a_left_branch_is_worth_is_chosen():
    # The last turn of the branch earned 1 and was scored 5; the critic's value of it and all later turns is 3.
    branch = path(Sampled(3, 1.0, score=5.0), finished=False, selected_by="tree")
    batch = batch_of([leaf([1], 4.0), leaf([2], 6.0), branch])
    values = torch.zeros(batch.rewards.shape)
    values[2, 2] = 3.0
    batch = replace(batch, values=values)
    # Against the others: 4 - 3.5, 6 - 2.5, 1 - 5.
    assert by_turn(batch, tree_backup(batch)) == [[0.5], [3.5], [-4]]
    # It is worth 6: 4 - 6, 6 - 5, 6 - 5.
    assert by_turn(batch, tree_backup(batch, unfinished="score")) == [[-2], [1], [1]]
    # Worth 3: 4 - 4.5, 6 - 3.5, 3 - 5.
    assert by_turn(batch, tree_backup(batch, unfinished="value")) == [[-0.5], [2.5], [-2]]
    assert by_turn(batch, tree_backup(batch, unfinished="skip")) == [[-2], [2], [0]]
    with pytest.raises(ValueError, match="critic's values"):
        tree_backup(replace(batch, values=None), unfinished="value")


def test_a_turn_below_which_nothing_is_known_has_nothing():
    branches = [path((1,), (2, 9.0), finished=False), path((1,), (3, 1.0), finished=False)]
    batch = batch_of([*branches, leaf([4], 4.0), leaf([5], 6.0)])
    assert by_turn(batch, tree_backup(batch, unfinished="skip", **ALL)) == [[0, 0], [0, 0], [-2], [2]]


def test_a_critic_learns_what_was_earned_from_each_turn_on_and_nothing_of_itself():
    # Below node 1, which earned -1: nodes 2 (+4), 3 (+8), and node 4, left with -1 and the critic's value 3.
    leaves = [path((1, -1.0), (2, 4.0)), path((1, -1.0), (3, 8.0)), path((1, -1.0), (4, -1.0), finished=False)]
    batch = batch_of(leaves)
    values = torch.zeros(batch.rewards.shape)
    values[2, batch.sampled[2].nonzero()[-1]] = 3.0
    batch = replace(batch, values=values)
    # Returns of paths are 3, 7 and -1 + 3 = 2, so node 1 is worth 4, all of which comes from its turn on.
    assert by_turn(batch, tree_value_targets(batch, values)) == [[4, 4], [4, 8], [4, 3]]
    # The children are compared by 3, 7 and 2: against the others 3 - 4.5, 7 - 2.5, 2 - 5.
    by_value = tree_backup(batch, unfinished="value", only_child="zero", **ALL)
    assert by_turn(batch, by_value) == [[0, -1.5], [0, 4.5], [0, -3]]


def left(nodes, price=-0.1):
    return path(*[(node, price) for node in nodes], finished=False, selected_by="tree")


def played(nodes, price=-0.1, end=0.0):
    *before, last = nodes
    return path(*[(node, price) for node in before], (last, price + end), selected_by="tree", success=end > 0)


EVERY_RETURN = [tree_backup, partial(tree_backup, scale="std"), treerl, grpo, rloo, tree_grpo, gigpo]
every_return = pytest.mark.parametrize(
    "estimator", [*EVERY_RETURN, partial(treepo, whiten=False), partial(treerl, local="ancestors")]
)


@every_return
def test_where_all_fail_a_rejected_branch_is_worth_no_more_than_one_that_went_on(estimator):
    """A search of three turns that cost .1 each: at every turn one of three candidates continues, and nothing succeeds.

    A rejected branch stopped paying at its turn; completed to what going on would have cost, all leaves are equal.
    """
    rejected = [left([1]), left([2]), left([3, 4]), left([3, 5])]
    batch = batch_of([*rejected, *[played([3, 6, last]) for last in (7, 8, 9)]])
    assert torch.count_nonzero(estimator(batch)) == 0


def test_a_left_branch_is_completed_by_what_failures_that_went_on_still_earned():
    # After turn 0 the failures of the group still earned -.2 - .4 and -.6 - .6: -.9 on average. After turn 1, -.4 and
    # -.6: -.5. The success is no failure, and the failure of one turn is no evidence for later ones.
    failures = [path((1, -0.1), (2, -0.2), (3, -0.4)), path((4, -0.3), (5, -0.6), (6, -0.6)), path((7, -2.0))]
    batch = batch_of([*failures, played([8, 9, 10], end=10.0), left([11]), left([12, 13])])
    table = table_of(batch)
    actual = rewards_of(table, Backup()).values[table.is_last].tolist()
    assert actual == pytest.approx([-0.7, -1.5, -2.0, 9.7, -0.1 - 0.9, -0.2 - 0.5])
    # Where a turn's own rewards are added up, the rest comes with the last of them.
    to_go = Backup(rewards="turn", kind="return_to_go")
    actual = back_up(table, rewards_of(table, to_go), to_go).values[table.trajectory == 5].tolist()
    assert actual == pytest.approx([-0.7, -0.6])
    # A turn's reward alone is what it is.
    assert rewards_of(table, Backup(rewards="turn")).values.tolist() == table.reward.tolist()
    actual = rewards_of(table, Backup(unfinished="return")).values[table.is_last].tolist()
    assert actual[-2:] == pytest.approx([-0.1, -0.2])
    batch = batch_of([played([1, 2], end=1.0), left([3])])
    table = table_of(batch)
    assert rewards_of(table, Backup()).values[table.is_last].tolist() == pytest.approx([0.8, -0.1])


def recursed(group):
    """Return the advantages by recursion over (tree, prefix), with leave-one-out means."""
    leaves = {(each.tree, tuple(turn.node for turn in each.turns)): each.total_reward for each in group.trajectories}

    def children(prefixes):
        pairs = [(tree, nodes, prefix) for tree, nodes in leaves for its, prefix in prefixes if its == tree]
        pairs = [(tree, nodes[: len(prefix) + 1], prefix) for tree, nodes, prefix in pairs if nodes != prefix]
        return sorted({(tree, nodes) for tree, nodes, prefix in pairs if nodes[:-1] == prefix})

    def value(node):
        below = children([node])
        return sum(map(value, below)) / len(below) if below else leaves[node]

    roots = [(tree, ()) for tree in {tree for tree, _ in leaves}]

    def advantage(tree, nodes):
        if not nodes:
            return 0.0
        siblings = children(roots if len(nodes) == 1 else [(tree, nodes[:-1])])
        others = [value(each) for each in siblings if each != (tree, nodes)]
        return value((tree, nodes)) - sum(others) / len(others) if others else advantage(tree, nodes[:-1])

    return [[advantage(tree, nodes[:depth]) for depth in range(1, len(nodes) + 1)] for tree, nodes in leaves]


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_random_forests_against_a_recursion(seed):
    groups = random_groups(seed)
    actual = by_turn(collate(groups), tree_backup(collate(groups), **ALL))
    expected = [turns for group in groups for turns in recursed(group)]
    assert [pytest.approx(turns, abs=1e-4) for turns in expected] == actual
