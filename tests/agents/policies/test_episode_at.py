"""Episodes read from the nodes of a tree."""

import pytest

from tests.agents.worlds import WALKER, rooms
from tsr_gym import Snapshot, Tree, TsrGymError
from tsr_gym.agents.policies.episode_at import episode_at
from tsr_gym.snapshots import Layer
from tsr_gym.tree import Candidate, Expand, Node


def test_the_episode_at_a_node_is_the_one_that_going_there_brings():
    env = rooms(seed=3)
    (candidates,) = WALKER([(env.tree, Expand(0, 4))])
    for node in [0, *env.expand(0, candidates)]:
        env.goto(node)
        assert episode_at(env.tree, node) == env.unwrapped.episode


def test_without_a_snapshot_there_is_no_episode_to_read(tmp_path):
    env = rooms(seed=3)
    env.tree.save(tmp_path / "tree.jsonl", snapshots=False)
    with pytest.raises(TsrGymError, match="wanted the snapshot of a StateEnv at node 0"):
        episode_at(Tree.load(tmp_path / "tree.jsonl"), 0)
    foreign = Tree()
    foreign.add(Node(None, 0, Candidate(""), "", 0.0, 0.0, False, False, {}, None))
    with pytest.raises(TsrGymError, match="got NoneType"):
        episode_at(foreign, 0)


def test_the_states_of_other_peoples_environments_are_not_read():
    foreign = Tree()
    snapshot = Snapshot((Layer("elsewhere:Env", (1, 2)),))
    foreign.add(Node(None, 0, Candidate(""), "", 0.0, 0.0, False, False, {}, snapshot))
    with pytest.raises(TsrGymError, match="wanted the snapshot of a StateEnv at node 0, got tuple"):
        episode_at(foreign, 0)
