"""TreeRL, worked out by hand and against a walk over the tree."""

import pytest

from tests.agents.learning.advantages.forests import batch_of, by_turn, leaf, random_groups
from tsr_gym.agents.learning.advantages import treerl
from tsr_gym.agents.learning.batch import collate

# Leaves 0, 3, 6, all but the last below turn 1; less the mean of the others: -4.5, 0, 4.5.
LEAVES = [leaf([1, 2], 0.0), leaf([1, 3], 3.0), leaf([4], 6.0)]


def test_a_turn_is_worth_its_leaves_against_the_root_and_against_its_parent():
    # V of 1 is -2.25, of 2 is -4.5, of 3 is 0, of 4 is 4.5, of the root 0.
    # Twice V for first turns; -4.5 - 2.25 and 0 + 2.25 below.
    batch = batch_of(LEAVES)
    original = by_turn(batch, treerl(batch, prefix=0.0))
    assert original == [[-4.5, -6.75], [-4.5, 2.25], [9.0]]


def test_shared_turns_are_divided_by_the_root_of_their_number_of_leaves():
    batch = batch_of(LEAVES)
    assert by_turn(batch, treerl(batch))[0] == pytest.approx([-4.5 / 2**0.5, -6.75])
    assert by_turn(batch, treerl(batch, prefix=1.0))[0] == pytest.approx([-2.25, -6.75])


def test_trees_of_a_prompt_hang_under_one_root():
    batch = batch_of([leaf([1], 0.0), leaf([1], 2.0, tree=1)])
    assert by_turn(batch, treerl(batch)) == [[-4.0], [4.0]]


def test_the_second_part_can_be_taken_over_all_ancestors():
    # Of 2: its distances from the root, -4.5, and from its parent, -2.25, have the mean -3.375.
    batch = batch_of(LEAVES)
    found = by_turn(batch, treerl(batch, local="ancestors", prefix=0.0))
    assert found == [pytest.approx([-4.5, -4.5 - 3.375]), pytest.approx([-4.5, 0 + 1.125]), pytest.approx([9.0])]


def test_the_first_part_can_be_taken_around_the_mean_of_all_steps():
    # V of the five steps in the batch: -2.25, -4.5, -2.25, 0, 4.5: mean -0.9.
    batch = batch_of(LEAVES)
    found = by_turn(batch, treerl(batch, recentre="step", prefix=0.0))
    assert found[2] == pytest.approx([4.5 + 0.9 + 4.5])


def walked(group, power):
    """Return the advantages by walking: leaves below every prefix, plain means."""
    leaves = [(one.tree, tuple(turn.node for turn in one.turns), one.total_reward) for one in group.trajectories]
    total = sum(worth for *_, worth in leaves)
    centred = [worth - (total - worth) / (len(leaves) - 1) if len(leaves) > 1 else 0.0 for *_, worth in leaves]

    def value(tree, prefix):
        below = [
            centred[number]
            for number, (its, nodes, _) in enumerate(leaves)
            if not prefix or (its == tree and nodes[: len(prefix)] == prefix)
        ]
        return sum(below) / len(below), len(below)

    found = []
    for tree, nodes, _ in leaves:
        turns = []
        for depth in range(1, len(nodes) + 1):
            here, count = value(tree, nodes[:depth])
            turns.append((here - value(tree, ())[0] + here - value(tree, nodes[: depth - 1])[0]) / count**power)
        found.append(turns)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_random_forests_against_a_walk(seed, power):
    groups = random_groups(seed)
    found = by_turn(collate(groups), treerl(collate(groups), prefix=power))
    expected = [turns for group in groups for turns in walked(group, power)]
    assert [pytest.approx(turns, abs=1e-4) for turns in expected] == found
