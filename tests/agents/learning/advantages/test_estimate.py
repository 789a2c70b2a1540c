"""The mechanism: its laws, on random forests and for every estimator that is made of it."""

from functools import partial

import pytest
import torch

from tests.agents.learning.advantages.forests import (
    Sampled,
    batch_of,
    by_trajectory,
    by_turn,
    flat,
    leaf,
    path,
    random_groups,
)
from tests.conftest import seeds
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import (
    Backup,
    Contrast,
    dr_grpo,
    estimate,
    gigpo,
    grpo,
    mt_grpo,
    reinforce_pp,
    rloo,
    tree_backup,
    tree_grpo,
    treepo,
    treerl,
    tspo,
    turn_rloo,
)
from tsr_gym.agents.learning.advantages.turn_table import table_of
from tsr_gym.agents.learning.batch import collate

SEEDS = seeds(1, 4)
ESTIMATORS = {
    "grpo": grpo, "grpo on naive": partial(grpo, baseline="naive"), "dr_grpo": dr_grpo, "rloo": rloo,
    "rloo per kind": partial(rloo, baseline="per_kind"), "reinforce_pp": reinforce_pp,
    "reinforce_pp bare": partial(reinforce_pp, subtract="nothing", gamma=0.9), "tree_grpo": tree_grpo, "tspo": tspo,
    "tspo zeros": partial(tspo, ragged="zero", groups="all"), "tspo last": partial(tspo, ragged="last"),
    "mt_grpo": mt_grpo, "turn_rloo": partial(turn_rloo, turn_weight=0.5), "gigpo": gigpo, "treerl": treerl,
    "treerl ancestors": partial(treerl, local="ancestors", recentre="token"), "treepo": treepo,
    "treepo by size": partial(treepo, weighting="size", drop_flat=True), "tree_backup": tree_backup,
    "tree_backup softmax": partial(tree_backup, backup="child_softmax", by="score", scale="std", centre="mean"),
}  # fmt: skip
WHITENED = [ESTIMATORS[name] for name in ("reinforce_pp", "reinforce_pp bare", "treepo", "treepo by size")]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


def of_groups(groups, estimator):
    """Return the advantages as a list per trajectory, a list per group."""
    batch = collate(groups)
    actual = iter(by_turn(batch, estimator(batch)))
    return [[next(actual) for _ in group.trajectories] for group in groups]


def nearly(actual, expected):
    for mine, its in zip(actual, expected, strict=True):
        for left, right in zip(mine, its, strict=True):
            assert left == pytest.approx(right, abs=2e-5)


@every_estimator
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_rows_groups_and_trajectories_does_not_matter(estimator, seed):
    groups = random_groups(seed, kinds=True)
    batch = collate(groups)
    order = torch.randperm(len(batch.ids), generator=torch.Generator().manual_seed(seed))
    shuffled = estimator(batch.rows(order))
    torch.testing.assert_close(shuffled, estimator(batch)[order], atol=2e-5, rtol=1e-5)
    straight = of_groups(groups, estimator)
    turned = [Group(group.task, group.trajectories[::-1]) for group in groups[::-1]]
    nearly([trajectory for group in of_groups(turned, estimator)[::-1] for trajectory in group[::-1]], flat(straight))


@every_estimator
def test_a_group_does_not_feel_the_others_unless_it_is_whitened(estimator):
    groups = random_groups(11, kinds=True)
    together = of_groups(groups, estimator)
    for group, wanted in zip(groups, together, strict=True) if estimator not in WHITENED else ():
        nearly(of_groups([group], estimator)[0], wanted)


@every_estimator
def test_nothing_is_learned_where_everything_was_worth_the_same_or_stands_alone(estimator):
    equal = batch_of([path((1, 0.1), (2, 0.1)), path((1, 0.1), (3, 0.1)), path((4, 0.1), (5, 0.1))])
    for batch in (equal, batch_of([path((1, 0.5), (2, 1.0))])):
        # Without a baseline early turns, after which more is earned, are worth more.
        assert estimator is ESTIMATORS["reinforce_pp bare"] or torch.count_nonzero(estimator(batch)) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_forest_of_chains_gives_grpo(seed):
    batch = collate(random_groups(seed, chains=True))
    chain = grpo(batch)
    assert chain.abs().max() > 0.1
    torch.testing.assert_close(tree_grpo(batch), chain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(treepo(batch, whiten=False), dr_grpo(batch), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tree_backup(batch), rloo(batch), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tree_backup(batch, centre="mean"), dr_grpo(batch), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tree_backup(batch, centre="mean", scale="std"), chain, atol=1e-5, rtol=1e-5)


def gradients(batch, advantages):
    """Return the gradient of ``-sum A logp`` by (node, place in the turn), as a policy that sees prefixes would have.

    Copies of a shared turn are sampled in the same context, so they have the same log-probabilities.
    """
    table = table_of(batch)
    place = torch.arange(len(table.entry)) - table.starts[table.entry]
    chances = torch.zeros(table.num_nodes, int(place.max()) + 1, requires_grad=True)
    logprobs = (chances + 1).log()[table.node[table.entry], place]
    (gradient,) = torch.autograd.grad(-(advantages[table.row, table.column] * logprobs).sum(), chances)
    return gradient


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("estimator", [tree_grpo, treerl, tree_backup])
def test_copies_of_a_shared_turn_equal_one_with_the_summed_coefficient(estimator, seed):
    batch = collate(random_groups(seed))
    duplicate, once = estimator(batch, prefix="duplicate"), estimator(batch, prefix="once")
    assert torch.count_nonzero(once) < torch.count_nonzero(duplicate)
    torch.testing.assert_close(gradients(batch, once), gradients(batch, duplicate), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_dividing_by_how_many_share_a_turn_counts_it_once(seed):
    batch = collate(random_groups(seed))
    contrast = Contrast(scale="std")
    by_hand = torch.zeros(batch.ids.shape)
    plain = grpo(batch)
    for node in batch.node.unique().tolist():
        copies = batch.node == node
        by_hand[copies] = plain[copies] / int(copies.any(dim=1).sum())
    torch.testing.assert_close(estimate(batch, contrast, prefix=1.0), by_hand * batch.sampled, atol=1e-6, rtol=1e-5)
    half = estimate(batch, contrast, prefix=0.5)
    torch.testing.assert_close(half**2, by_hand * plain * batch.sampled, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_within_a_tree_advantages_sum_to_nothing_so_what_all_share_learns_nothing(seed):
    batch = collate(random_groups(seed))
    per_trajectory = torch.tensor(by_trajectory(batch, tree_grpo(batch, inter=0.0)))
    trees = torch.zeros(batch.num_trajectories, dtype=torch.int64)
    trees[batch.trajectory] = batch.tree
    assert torch.zeros(int(trees.max()) + 1).index_add(0, trees, per_trajectory).abs().max() < 1e-4
    once = tree_grpo(batch, inter=0.0, prefix="once")
    table = table_of(batch)
    whole = table.sharers == torch.bincount(table.tree[table.is_first])[table.tree]
    assert once[table.row, table.column][whole[table.entry]].abs().sum() < 1e-4


def test_contrasts_are_added_or_averaged_and_nodes_of_a_depth_compared():
    # One tree of three leaves below two turns, and a tree of one leaf.
    batch = batch_of([leaf([1, 2], 0.0), leaf([1, 3], 3.0), leaf([4], 6.0), leaf([1], 11.0, tree=1)])
    within_prompt, within_tree = Contrast(), Contrast("tree")
    # Mean of 0, 3, 6, 11 is 5; mean of 0, 3, 6 is 3; the last is alone in its tree.
    assert by_trajectory(batch, estimate(batch, within_prompt, within_tree)) == [-8.0, -2.0, 4.0, 6.0]
    mean = estimate(batch, within_prompt, within_tree, combine="mean")
    assert by_trajectory(batch, mean) == [-4.0, -1.0, 2.0, 6.0]
    # Four were compared in the prompt, three in the tree: (4 * -5 + 3 * -3) / 7 and so on.
    size = estimate(batch, within_prompt, within_tree, combine="size")
    assert by_trajectory(batch, size) == pytest.approx([-29 / 7, -8 / 7, 13 / 7, 6.0])
    # BranchGRPO: V of 1 is 1.5, of 4 is 6: mean 3.75. Below: 0 and 3 around 1.5. The other tree stands alone.
    actual = estimate(batch, Contrast("depth", unit="node", of=Backup(kind="leaf_mean")))
    assert by_turn(batch, actual) == [[-2.25, -1.5], [-2.25, 1.5], [2.25], [0.0]]


def test_a_node_can_have_the_mean_of_what_the_paths_through_it_have():
    batch = batch_of([leaf([1, 2], 0.0), leaf([1, 3], 3.0), leaf([4], 6.0)])
    actual = estimate(batch, Contrast(), assign="node")
    assert by_turn(batch, actual) == [[-1.5, -3.0], [-1.5, 0.0], [3.0]]


def test_whitening_is_over_tokens():
    # Mean 2 of the group, advantages -1 on two tokens and 1 on one: mean -1/3, squares 4/9 + 4/9 + 16/9 over 2.
    batch = batch_of([path(Sampled(1, 1.0, tokens=2)), path(Sampled(2, 3.0, tokens=1))])
    actual = by_trajectory(batch, estimate(batch, Contrast(), whiten=True))
    assert actual == pytest.approx([(-1 + 1 / 3) / (4 / 3) ** 0.5, (1 + 1 / 3) / (4 / 3) ** 0.5])


def test_units_count_once_each():
    # The first trajectory has two turns of two tokens, the second one of a single token; returns 1 and 4.
    batch = batch_of([path((1, 0.0), (2, 1.0)), path(Sampled(3, 4.0, tokens=1))])
    assert by_trajectory(batch, estimate(batch, Contrast())) == [-1.5, 1.5]
    # Two steps against one: mean 2. Four tokens against one: mean 8/5.
    assert by_trajectory(batch, estimate(batch, Contrast(unit="step"))) == [-1.0, 2.0]
    assert by_trajectory(batch, estimate(batch, Contrast(unit="token"))) == pytest.approx([1 - 1.6, 4 - 1.6])


def test_rewards_can_be_compared_first_and_added_up_later():
    # IGPO: rewards of turns around their mean, then what comes with them. Mean of 1, 0, 2, 3 is 1.5.
    batch = batch_of([path((1, 1.0), (2, 0.0)), path((3, 2.0), (4, 3.0))])
    first = Contrast(unit="step", of=Backup(rewards="turn"))
    to_go = Backup(rewards="turn", kind="return_to_go", gamma=0.5)
    actual = estimate(batch, Contrast(unit="step", centre="none", of=to_go, before=first))
    assert by_turn(batch, actual) == [[-0.5 + 0.5 * -1.5, -1.5], [0.5 + 0.5 * 1.5, 1.5]]


def test_a_singleton_keeps_its_value_only_where_nothing_is_compared():
    batch = batch_of([path((1, 3.0))])
    assert by_trajectory(batch, estimate(batch, Contrast(centre="none"))) == [3.0]
    assert by_trajectory(batch, estimate(batch, Contrast(centre="none", scale="std"))) == [0.0]
    assert by_trajectory(batch, estimate(batch, Contrast(centre="mean"))) == [0.0]
    assert by_trajectory(batch, estimate(batch, Contrast(alone="raw"))) == [3.0]


def test_two_trees_with_the_same_number_are_refused_where_nodes_matter():
    first, second = leaf([1, 2], 1.0), path(Sampled(1, 0.0, tokens=3), Sampled(2, 1.0))
    batch = batch_of([first, second])
    assert torch.isfinite(grpo(batch)).all()
    with pytest.raises(ValueError, match=r"number=\.\.\."):
        tree_backup(batch)
    with pytest.raises(ValueError, match="trees of a group"):
        treerl(batch)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"of": Backup(rewards="turn")}, "wanted unit 'step'"),
        ({"key": "turn"}, "which differs by turn"),
        ({"key": "depth", "unit": "node"}, "only after a backup"),
        ({"ragged": "zero"}, "ragged compares turns"),
    ],
)
def test_choices_that_contradict_each_other_are_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        Contrast(**choices)
