"""Trees as traces of verifiers, and its taskset and environment over ours. Not collected by itself; `make
test-verifiers` runs it, without torch.
"""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from tests.agents.bridges.helpers import branching_tree, window_tree
from tsr_gym import ConfigError
from tsr_gym.agents.bridges.rows import tree_nodes
from tsr_gym.agents.bridges.verifiers import tree_from_messages, tree_trace, tsr_taskset
from tsr_gym.agents.episodes.trajectory import harvest_all

vf = pytest.importorskip("verifiers.v1", reason="needs verifiers: make test-verifiers")
Trace = pytest.importorskip("verifiers.v1.trace").Trace


@pytest.mark.parametrize("tree", [branching_tree(), window_tree()], ids=["full history", "window"])
def test_a_trace_comes_back_as_the_same_tree(tree):
    written = tree_trace(tree).model_dump()
    trace = Trace.model_validate(written)
    back = tree_from_messages([node.model_dump() for node in trace.nodes], trace.info)
    assert tree_nodes(back) == tree_nodes(tree)


def test_branches_are_the_paths_with_their_tokens_masks_and_log_probabilities():
    tree = branching_tree()
    branches = tree_trace(tree).branches
    paths = {(11, 12, 1, 2, 13, 14, 3): [0, 0, 1, 1, 0, 0, 1], (11, 12, 1, 2, 13, 14, 4, 5): [0, 0, 1, 1, 0, 0, 1, 1]}
    paths[11, 12, 6] = [0, 0, 1]
    assert {tuple(branch.token_ids): [int(bit) for bit in branch.sampled_mask] for branch in branches} == paths
    by_ids = {path.turns[-1].prompt_ids + path.turns[-1].token_ids: path for path in harvest_all(tree)}
    for branch in branches:
        trajectory = by_ids[tuple(branch.token_ids)]
        logprobs = [logprob for logprob, sampled in zip(branch.logprobs, branch.sampled_mask, strict=True) if sampled]
        assert logprobs == [logprob for turn in trajectory.turns for logprob in turn.logprobs]


def test_a_shared_beginning_is_one_node_so_that_it_is_trained_once():
    trace = tree_trace(branching_tree())
    assert len(trace.nodes) == 6
    shared = [node for node in trace.nodes if node.sampled and node.token_ids == [1, 2]]
    assert len(shared) == 1


def test_advantages_stand_at_their_tokens():
    tree = branching_tree()
    given = {1: (0.5, 0.25), 2: (-1.0,), 3: (1.0, 2.0), 4: (0.125,)}
    branches = {tuple(branch.token_ids): branch.advantages for branch in tree_trace(tree, given).branches}
    assert branches[11, 12, 1, 2, 13, 14, 4, 5] == [0, 0, 0.5, 0.25, 0, 0, 1.0, 2.0]
    assert branches[11, 12, 6] == [0, 0, 0.125]
    with pytest.raises(ConfigError, match="wanted 2 advantages of node 1"):
        tree_trace(tree, {1: (0.5,)})


class Scripted:
    """A scripted agent of verifiers: it gives fixed replies, and keeps the observations."""

    def __init__(self, replies, task):
        self.replies, self.told = list(replies), []
        self.trace = tree_trace(branching_tree())
        self.trace.rewards.clear()

    @asynccontextmanager
    async def interaction(self, task):
        yield self

    async def turn(self, text=None):
        self.told.append(text)
        done = not self.replies
        return SimpleNamespace(terminated=done, last_reply="" if done else self.replies.pop(0))


def test_a_taskset_and_an_environment_play_the_instance_of_a_task():
    taskset_kind, env_kind = tsr_taskset("frozenlake", tasks=3, is_slippery=False)
    assert issubclass(taskset_kind, vf.Taskset)
    assert issubclass(env_kind, vf.Env)
    tasks = list(taskset_kind(vf.TasksetConfig()))
    assert [task.data.seed for task in tasks] == [0, 1, 2]
    assert len({task.data.prompt for task in tasks}) > 1
    assert "<answer>" in tasks[0].data.system_prompt
    player = Scripted(["<think></think><answer>Right</answer>", "no form"], tasks[1])
    asyncio.run(env_kind.run(None, tasks[1], SimpleNamespace(player=player)))
    assert player.told[0] is None
    assert len(player.told) == 3
    assert player.trace.rewards["return"].score == pytest.approx(-0.1)
    assert player.trace.metrics["finished"] == 0.0


def test_the_player_replies_from_a_process_of_this_machine_without_flags():
    _, env = tsr_taskset("frozenlake")
    player = env.__orig_bases__[0].__args__[0]().player
    assert (player.harness.id, player.runtime.type) == ("null", "subprocess")
