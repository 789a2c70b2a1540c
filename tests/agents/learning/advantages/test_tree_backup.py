"""Tree backup, worked out by hand and against a recursion over the tree."""

from dataclasses import replace
from math import exp

import pytest
import torch

from tests.agents.learning.advantages.forests import Said, batch_of, by_turn, leaf, path, random_groups
from tsr_gym.agents.learning.advantages import tree_backup
from tsr_gym.agents.learning.batch import collate

# Below the root 1 and 5; below 1 the nodes 2 and 3; below 3 the node 4 alone.
LEAVES = [leaf([1, 2], 0.0), leaf([1, 3, 4], 4.0), leaf([5], 5.0)]
ALL = {"prefix": 0.0}


def test_every_candidate_is_compared_with_its_siblings():
    # V: 2 is 0, 3 and 4 are 4, 1 is 2, 5 is 5. Against the others: 1 has 2 - 5, 5 has 5 - 2, 2 has 0 - 4, 3 has 4 - 0.
    # 4 has no sibling: it goes on with 3.
    batch = batch_of(LEAVES)
    assert by_turn(batch, tree_backup(batch, **ALL)) == [[-3, -4], [-3, 4, 4], [3]]
    assert by_turn(batch, tree_backup(batch, centre="mean", **ALL)) == [[-1.5, -2], [-1.5, 2, 2], [1.5]]
    assert by_turn(batch, tree_backup(batch, only_child="zero", **ALL)) == [[-3, -4], [-3, 4, 0], [3]]


def test_a_shared_turn_counts_once():
    batch = batch_of(LEAVES)
    assert by_turn(batch, tree_backup(batch)) == [[-1.5, -4], [-1.5, 4, 4], [3]]


def test_children_count_alike_however_many_leaves_they_have_unless_leaves_are_to_count():
    # 1 has the children 2, with leaves 0 and 2, and 5 with 4: (1 + 4) / 2 or (0 + 2 + 4) / 3.
    batch = batch_of([leaf([1, 2, 3], 0.0), leaf([1, 2, 4], 2.0), leaf([1, 5], 4.0), leaf([6], 0.0)])
    assert by_turn(batch, tree_backup(batch, **ALL))[3] == [-2.5]
    assert by_turn(batch, tree_backup(batch, backup="leaf_mean", **ALL))[3] == [-2.0]


def test_children_can_be_weighted_by_score_or_surprisal():
    first = [path((1,), Said(2, 0.0, score=1.0, logprob=-3.0)), path((1,), Said(3, 8.0, score=2.0, logprob=-1.0))]
    batch = batch_of([*first, path((4, 0.0))])
    share = exp(2 / 0.5) / (exp(1 / 0.5) + exp(2 / 0.5))
    by_score = tree_backup(batch, backup="child_softmax", by="score", tau=0.5, **ALL)
    assert by_turn(batch, by_score)[2] == pytest.approx([-8 * share])
    share = exp(1) / (exp(3) + exp(1))
    by_surprisal = tree_backup(batch, backup="child_softmax", **ALL)
    assert by_turn(batch, by_surprisal)[2] == pytest.approx([-8 * share])


def test_first_turns_of_all_trees_of_a_prompt_are_siblings():
    batch = batch_of([leaf([1], 0.0), leaf([1], 2.0, tree=1), leaf([2], 4.0, tree=1)])
    assert by_turn(batch, tree_backup(batch, **ALL)) == [[-3], [0], [3]]


def test_what_a_left_branch_is_worth_is_chosen():
    # The last turn of the branch earned 1 and was scored 5; the critic says 2 at its end.
    left = path(Said(3, 1.0, score=5.0), finished=False, selected_by="tree")
    batch = batch_of([leaf([1], 4.0), leaf([2], 6.0), left])
    values = torch.zeros(batch.rewards.shape)
    values[2, 2] = 2.0
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
    left = [path((1,), (2, 9.0), finished=False), path((1,), (3, 1.0), finished=False)]
    batch = batch_of([*left, leaf([4], 4.0), leaf([5], 6.0)])
    assert by_turn(batch, tree_backup(batch, unfinished="skip", **ALL)) == [[0, 0], [0, 0], [-2], [2]]


def recursed(group):
    """Return the advantages by recursion over (tree, prefix), with leave-one-out means."""
    leaves = {(one.tree, tuple(turn.node for turn in one.turns)): one.total_reward for one in group.trajectories}

    def children(prefixes):
        found = set()
        for tree, nodes in leaves:
            for its, prefix in prefixes:
                if its == tree and nodes[: len(prefix)] == prefix and len(nodes) > len(prefix):
                    found.add((tree, nodes[: len(prefix) + 1]))
        return sorted(found)

    def value(node):
        below = children([node])
        return sum(map(value, below)) / len(below) if below else leaves[node]

    roots = [(tree, ()) for tree in {tree for tree, _ in leaves}]

    def advantage(tree, nodes):
        if not nodes:
            return 0.0
        siblings = children(roots if len(nodes) == 1 else [(tree, nodes[:-1])])
        others = [value(one) for one in siblings if one != (tree, nodes)]
        return value((tree, nodes)) - sum(others) / len(others) if others else advantage(tree, nodes[:-1])

    return [[advantage(tree, nodes[:depth]) for depth in range(1, len(nodes) + 1)] for tree, nodes in leaves]


@pytest.mark.parametrize("seed", range(8))
def test_random_forests_against_a_recursion(seed):
    groups = random_groups(seed)
    found = by_turn(collate(groups), tree_backup(collate(groups), **ALL))
    expected = [turns for group in groups for turns in recursed(group)]
    assert [pytest.approx(turns, abs=1e-4) for turns in expected] == found
