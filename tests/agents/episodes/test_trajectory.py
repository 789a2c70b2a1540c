"""Trajectories, the moves of trees, and the advantages that a tree keeps."""

import numpy as np
import pytest

from tests.agents.episodes.test_collect import collector
from tests.agents.reports.view.trees import small_tree
from tests.agents.worlds import Script, cycle, letters
from tsr_gym import Candidate, Node, Tree
from tsr_gym.agents.episodes.collect import edges_by_task
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.trajectory import (
    Edge,
    Group,
    Learned,
    Trajectory,
    Turn,
    edges_along,
    harvest,
    harvest_all,
    harvest_edges,
    harvest_leaves,
    keep_learned,
    learned_from,
    success_rate,
    trajectory_to,
)
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.strategies import best_of_n, naive


def node(parent, depth, said, reward, *, score=None, end="", key=None, **info):
    """Return a node; `end` is t for terminated, c for cut off."""
    candidate = Candidate(said, (1,) * depth, tuple(map(ord, said)), (-0.5,) * len(said))
    score = reward if score is None else score
    return Node(parent, depth, candidate, f"after {said}", reward, score, end == "t", end == "c", info, None, key)


def tree_of(*nodes, score_of="turn"):
    tree = Tree(seed=4, score_of=score_of)
    tree.add(node(None, 0, "", 0.0, key=b"start"))
    for one in nodes:
        tree.add(one)
    return tree


def tree_of_four():
    """One episode solved, one cut off, one lost, one unfinished."""
    return tree_of(
        node(0, 1, "ab", 1.0, score=0.75, key=b"there", executed=("Up", "Down"), action_is_valid=True),
        node(1, 2, "c", 2.5, end="t", success=True, executed=("Up",), action_is_valid=True),
        node(0, 1, "d", -0.5, end="c", success=False, executed=(), action_is_valid=False),
        node(1, 2, "e", 9.0, executed=("Up",)),
        node(1, 2, "f", 0.25, end="t", success=False),
    )


def test_a_trajectory_is_the_path_with_the_sampled_tokens_and_the_rewards():
    found = trajectory_to(tree_of_four(), 2, selected_by="beam", number=3)
    first = {"node": 1, "state": b"start", "score": 0.75, "observation": "after ab", "action": ("Up", "Down")}
    first = Turn((1,), (97, 98), (-0.5, -0.5), 1.0, is_valid=True, num_actions=2, **first)
    second = {"node": 2, "state": b"there", "score": 2.5, "observation": "after c", "action": ("Up",)}
    second = Turn((1, 1), (99,), (-0.5,), 2.5, is_valid=True, num_actions=1, **second)
    assert found == Trajectory((first, second), True, 3.25, "beam", tree=3, finished=True)
    assert (found.total_reward, found.num_tokens) == (3.5, 3)


def test_invalid_turns_and_golden_answers_are_remembered():
    (turn,) = trajectory_to(tree_of_four(), 3, selected_by="naive").turns
    assert (turn.is_valid, turn.num_actions, turn.reward) == (False, 0, -0.5)
    tree = tree_of(node(0, 1, "a", 0.0, golden_answers=("Otto", "O. B.")), node(1, 2, "b", 0.0, end="t"))
    found = trajectory_to(tree, 2, selected_by="naive")
    assert [turn.golden_answers for turn in found.turns] == [("Otto", "O. B."), ()]


def test_success_needs_the_task_to_have_ended_and_not_only_a_limit():
    tree = tree_of(
        node(0, 1, "a", 0.0, end="t", success=True),
        node(0, 1, "b", 0.0, end="c", success=True),
        node(0, 1, "c", 0.0, end="t", success=False),
        node(0, 1, "d", 0.0, end="t"),
    )
    assert [trajectory.success for trajectory in harvest_all(tree)] == [True, False, False, False]


def letters_of(trajectories):
    return ["".join(chr(turn.token_ids[0]) for turn in trajectory.turns) for trajectory in trajectories]


def test_harvest_leaves_unfinished_paths_out_and_ranks_the_rest():
    # Node 4 has the highest reward by far, but its episode has not ended.
    found = harvest(tree_of_four(), 5)
    assert letters_of(found) == ["ac", "af", "d"]
    assert harvest(tree_of_four()) == found[:1]
    assert [trajectory.score for trajectory in found] == [3.25, 1.0, -0.5]


def test_harvest_ranks_by_reward_or_by_the_last_score_of_a_state():
    tree = tree_of(node(0, 1, "a", 1.0, score=5.0, end="t"), node(0, 1, "b", 2.0, score=4.0, end="t"))
    assert harvest(tree)[0].total_reward == 1.0
    assert harvest(tree, by="score")[0].total_reward == 1.0
    assert harvest(tree, by="reward")[0].total_reward == 2.0
    nodes = (node(0, 1, "a", 0.0, score=-1.0), node(1, 2, "b", 0.0, score=-9.0, end="t"))
    tree = tree_of(*nodes, node(0, 1, "c", 0.0, score=-9.5, end="t"), score_of="state")
    # As a sum the first path would be worth -10.
    assert [trajectory.score for trajectory in harvest(tree, 2)] == [-9.0, -9.5]


def ends(trajectories):
    return [trajectory.turns[-1].node for trajectory in trajectories]


def test_what_the_search_chose_comes_first_and_in_its_order():
    tree = tree_of(*[node(0, 1, "abcd"[number], float(number), end="t" if number else "") for number in range(4)])
    assert ends(harvest(tree, 3)) == [4, 3, 2]
    # Node 1 is not the end of an episode.
    tree.choose([2, 1, 4])
    assert (ends(harvest(tree, 3)), ends(harvest(tree))) == ([2, 4, 3], [2])
    assert ends(harvest(tree, 3, by="reward")) == [4, 3, 2]


def test_every_leaf_can_be_harvested_also_those_that_were_left():
    found = harvest_leaves(tree_of_four(), number=2)
    assert ends(found) == [2, 4, 5, 3]
    assert [trajectory.finished for trajectory in found] == [True, False, True, True]
    assert {trajectory.tree for trajectory in found} == {2}
    assert {trajectory.selected_by for trajectory in found} == {"tree"}
    # The same turn has the same number in all trajectories that share it.
    assert [trajectory.turns[0].node for trajectory in found] == [1, 1, 1, 3]
    assert harvest_leaves(tree_of()) == []


def test_every_harvest_names_its_tree_and_leaves_that_are_no_samples_their_strategy():
    tree = tree_of_four()
    assert {one.tree for one in harvest(tree, 5, number=4)} == {4}
    assert {one.tree for one in harvest_all(tree, number=5)} == {5}
    assert {one.tree for one in harvest_all(tree)} == {0}
    found = harvest_all(tree_of_four(), selected_by="random_branching")
    assert {one.selected_by for one in found} == {"random_branching"}
    # Code that selects plain play leaves these trajectories out.
    assert collate([Group(0, tuple(found))]).searched.all()
    assert not collate([Group(0, tuple(harvest_all(tree_of_four())))]).searched.any()


def test_harvest_of_everything_keeps_the_order_of_the_branches():
    assert letters_of(harvest_all(tree_of_four())) == ["ac", "af", "d"]
    env = letters({"a": 1.0, "b": 3.0}, turns=2)
    env.search(Script({"": "ab", "a": "a", "b": "b"}), lambda tree: naive(tree, rollouts=2))
    # Of two rollouts the first stays the first, although the second one is worth more.
    assert [trajectory.total_reward for trajectory in harvest_all(env.tree)] == [2.0, 6.0]
    assert {trajectory.selected_by for trajectory in harvest_all(env.tree)} == {"naive"}


def worth(*returns, success=()):
    turns = [(Turn((1,), (2,), (0.0,), value, is_valid=True, num_actions=1),) for value in returns]
    solved = success or [False] * len(returns)
    return Group(3, tuple(Trajectory(turn, won, 0.0, "naive") for turn, won in zip(turns, solved, strict=True)))


@pytest.mark.parametrize(
    ("returns", "deviation"),
    [
        # Squared distances from the mean 2: 1 + 1 over 2.
        ((1.0, 3.0), 1.0),
        # From the mean 3: 9 + 1 + 1 + 9 over 4.
        ((0.0, 2.0, 4.0, 6.0), 5.0**0.5),
        ((-0.5, -0.5, -0.5), 0.0),
        ((7.0,), 0.0),
    ],
)
def test_the_uncertainty_of_a_group_is_the_standard_deviation_of_its_returns(returns, deviation):
    assert worth(*returns).uncertainty == pytest.approx(deviation, abs=1e-12)


def test_mixed_success_means_some_and_not_all():
    assert worth(1.0, 2.0, success=[True, False]).has_mixed_success
    assert not worth(1.0, 2.0, success=[True, True]).has_mixed_success
    assert not worth(1.0, 2.0, success=[False, False]).has_mixed_success
    assert success_rate([]) == 0.0
    assert success_rate(worth(1.0, 2.0, 3.0, success=[True, False, False]).trajectories) == pytest.approx(1 / 3)


def test_a_path_that_stopped_at_a_dead_end_is_a_failure_and_not_left_out():
    tree = tree_of(
        node(0, 1, "a", 1.0, end="t", success=True),
        node(0, 1, "b", -0.5, dead_end="a box in a corner", success=False),
        node(0, 1, "c", 0.0),
    )
    won, lost = harvest_all(tree)
    assert (won.success, won.finished) == (True, True)
    assert (lost.success, lost.finished, lost.total_reward) == (False, False, -0.5)
    assert harvest(tree, 9) == [won, lost]


def tree_with_edges(*nodes):
    """Return a tree of bare nodes: the answer, the parent's index, and the state's key."""
    tree = Tree()
    for parent, said, key, more in nodes:
        depth = 0 if parent is None else tree.nodes[parent].depth + 1
        tree.add(Node(parent, depth, Candidate(said), "", 0.0, 0.0, False, False, more, None, key))
    return tree


def test_the_edges_of_trees_and_of_their_trajectories_are_the_same_but_for_where_the_last_one_leads():
    env = letters({"a": 1.0, "b": 0.0}, ends="b", turns=3)
    (tree,) = search([env], cycle("ab"), lambda tree: best_of_n(tree, n=4), seeds=[0])
    trees, along = harvest_edges([tree]), edges_along(harvest_all(tree))
    assert len(trees) == len(along) == len(tree.nodes) - 1
    ends = {node.state_key for node in tree.nodes if node.done}
    assert set(along) == {one._replace(after=None if one.ended else one.after) for one in trees}
    assert {one.after for one in trees if one.ended} == ends


def test_edges_are_of_known_states_and_of_actions_as_they_were_carried_out():
    tree = tree_with_edges((None, "", b"s", {}), (0, "a", None, {}), (1, "b", b"t", {}), (0, "c", b"t", {}))
    assert harvest_edges([tree]) == [Edge(b"s", "a", None, 0, False, False), Edge(b"s", "c", b"t", 0, False, False)]
    info = {"executed": ("Up", "Left")}
    tree = tree_with_edges((None, "", b"s", {}), (0, "go up, left", b"t", info), (0, "up left", b"t", info))
    assert set(harvest_edges([tree])) == {Edge(b"s", ("Up", "Left"), b"t", 2, False, False)}
    tree = tree_with_edges((None, "", b"s", {}), (0, np.zeros(2), b"t", {}))
    assert [one.action for one in harvest_edges([tree])] == [None]
    dead = tree_with_edges((None, "", b"s", {}), (0, "a", b"t", {"dead_end": "a corner"}))
    assert harvest_edges([dead]) == [Edge(b"s", "a", b"t", 0, False, True)]


def test_collected_trees_give_the_edges_of_their_tasks():
    brought = collector(SearchConfig(search="beam(width=2, branching=3)", trajectories=2, naive=1)).collect(0, 2)
    found = edges_by_task(brought)
    assert list(found) == [group.task for group in brought.groups]
    for group, trees in zip(brought.groups, brought.trees, strict=True):
        assert len(found[group.task]) == sum(len(tree.nodes) - 1 for tree in trees)


def test_advantages_come_back_from_the_file_of_a_tree(tmp_path):
    tree = small_tree()
    keep_learned(tree, Learned("gae", {1: (0.5, -1.25), 3: (2.0,)}))
    tree.save(tmp_path / "tree.jsonl")
    assert learned_from(Tree.load(tmp_path / "tree.jsonl")) == Learned("gae", {1: (0.5, -1.25), 3: (2.0,)})
    assert learned_from(small_tree()) == Learned("", {})


@pytest.mark.parametrize(
    "facts", [3, {"of": [1]}, {"of": {"9": [1.0], "1": ["much"], "2": 5, "3": [float("nan")], "4": [None]}}], ids=str
)
def test_what_is_no_advantage_of_a_node_is_left_out(facts):
    tree = small_tree()
    tree.about["advantages"] = facts
    assert learned_from(tree).of == {}
