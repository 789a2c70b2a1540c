"""The beam in arrays against the beam of objects, and against a twin in plain Python."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction

from tests.agents.arrays.singles import batch_of, random_choice, randomly, single, twin_beam
from tsr_gym import Candidate
from tsr_gym.agents.arrays import array_beam
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import beam
from tsr_gym.wrappers import TreeSearchWrapper

ROOMS = {"num_levels": 7, "max_actions": 12}
LAKES = {"num_levels": 5, "success_rate": 0.7, "max_actions": 9, "obs_type": "array"}
# The score of a turn in addition to its reward: no two sums of these over different paths are equal.
WORTHS = np.random.default_rng(0).random((30, 4))
CELLS = np.random.default_rng(1).integers(1000, size=36)


class Scripted:
    """A policy of the board and the candidate's number, for both kinds of search, and the scores of both."""

    def array_policy(self, batch, request):
        self.turn = request.depth
        self.actions = (batch.observe().reshape(batch.num_envs, -1) @ CELLS + request.numbers) % 4
        return self.actions

    def array_score(self, batch, rewards):
        return rewards + WORTHS[self.turn, self.actions]

    def policy(self, requests):
        worths = [(int(tree.nodes[node].observation.ravel() @ CELLS), samples) for tree, (node, samples) in requests]
        return [[Candidate((worth + number) % 4) for number in range(samples)] for worth, samples in worths]

    def rater(self, grown):
        nodes = [tree.nodes[index] for tree, index in grown]
        return [node.reward + WORTHS[node.depth - 1, node.candidate.text] for node in nodes]


def pictures_of_objects(tree):
    """Return the nodes by their addresses, and the selected addresses."""
    nodes = {
        tree.branch(index): (node.candidate.text, node.reward, node.score, node.terminated, node.truncated)
        for index, node in enumerate(tree.nodes)
        if index
    }
    return nodes, [tree.branch(index) for index in tree.chosen]


def pictures_of_arrays(found, task):
    """Return the same of a task's tree in arrays."""
    tree, addresses, nodes, number_of = found.tree, {0: ()}, {}, {}
    for place in range(1, tree.parents.shape[1]):
        parent = int(tree.parents[task, place])
        if parent < 0:
            continue
        number = number_of[parent] = number_of.get(parent, -1) + 1
        addresses[place] = (*addresses[parent], number)
        columns = (tree.actions, tree.rewards, tree.scores, tree.terminated, tree.truncated)
        nodes[addresses[place]] = tuple(column[task, place].item() for column in columns)
    return nodes, [addresses[place] for place in found.chosen[task].tolist() if place >= 0]


@pytest.mark.parametrize(("width", "branching", "depth"), [(1, 1, 3), (2, 4, 6), (5, 3, 12), (3, 2, 20), (40, 4, 4)])
def test_it_is_the_beam_of_objects(width, branching, depth):
    tasks, script = 6, Scripted()
    envs = [TreeSearchWrapper(gym.make("tsr/Sokoban-v0", action_type="discrete", **ROOMS)) for _ in range(tasks)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    strategy = partial(beam, width=width, branching=branching, depth=depth)
    trees = search(envs, script.policy, strategy, seeds=range(tasks), rater=script.rater)
    numbers = {"width": width, "branching": branching, "depth": depth, "seeds": range(tasks)}
    batch = batch_of("Sokoban", tasks, **ROOMS)
    found = array_beam(batch, script.array_policy, score=script.array_score, **numbers)
    for task, tree in enumerate(trees):
        assert pictures_of_arrays(found, task) == pictures_of_objects(tree)
        best = tree.path(tree.chosen[0])[1:]
        actions = found.actions[task].tolist()
        assert [action for action in actions if action >= 0] == [tree.nodes[index].candidate.text for index in best]
        assert found.returns[task] == pytest.approx(tree.total(tree.chosen[0], "reward"), abs=1e-12)
    assert found.tree.num_expanded == sum(len(tree.nodes) - 1 for tree in trees)


def pushed_right(observation, turn, number, seed):
    """Choose by all arguments of a policy."""
    return (int(observation.argmax()) + turn + number + (seed & 1)) % 4


def pushed_right_in_arrays(batch, request):
    seen = batch.observe().reshape(batch.num_envs, -1).argmax(1)
    return (seen + request.depth + request.numbers + (request.seeds & np.uint64(1)).astype(np.int64)) % 4


@pytest.mark.parametrize("noise", ["fresh", "common", "same"])
@pytest.mark.parametrize(("name", "settings"), [("FrozenLake", LAKES), ("Sokoban", ROOMS)])
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("score_of", ["turn", "state"])
def test_it_is_its_twin_ties_and_dice_included(noise, name, settings, told, score_of):
    # Most turns of both games pay the same, so that nearly all choices are ties.
    tasks, numbers = 4, {"width": 3, "branching": 4, "depth": 8, "noise": noise, "score_of": score_of}
    choose, policy = (pushed_right, pushed_right_in_arrays) if told else (random_choice, randomly)
    found = array_beam(batch_of(name, tasks, **settings), policy, seeds=range(50, 50 + tasks), **numbers)
    for task in range(tasks):
        twin, members = twin_beam(single(name, task, **settings), choose, seed=50 + task, **numbers)
        assert_alike(found, task, twin, members)


def assert_alike(found, task, twin, members):
    """Compare a task's tree with its twin's, node by node in the order in which both grew them."""
    tree, places = found.tree, [0, *np.flatnonzero(found.tree.parents[task] >= 0).tolist()]
    assert len(places) == len(twin.nodes)
    for place, node in zip(places[1:], twin.nodes[1:], strict=True):
        assert places.index(tree.parents[task, place]) == node["parent"]
        assert tree.actions[task, place] == node["action"]
        assert (tree.rewards[task, place], tree.scores[task, place]) == (node["reward"], node["score"])
        assert (tree.terminated[task, place], tree.truncated[task, place]) == (node["terminated"], node["truncated"])
    chosen = [places.index(place) for place in found.chosen[task].tolist() if place >= 0]
    assert chosen == members
    assert found.returns[task] == twin.nodes[members[0]]["return"]


def test_a_score_of_states_and_boards():
    # The score is the number of the player's cell, so that the search walks down and to the right.
    def score(batch, rewards):
        return batch.observe().reshape(batch.num_envs, -1).argmax(1).astype(float)

    def score_of_one(observation, reward):
        return float(observation.argmax())

    numbers = {"width": 2, "branching": 4, "depth": 6, "score_of": "state"}
    found = array_beam(batch_of("FrozenLake", 3, **LAKES), randomly, seeds=range(3), score=score, **numbers)
    for task in range(3):
        lake = single("FrozenLake", task, **LAKES)
        twin, members = twin_beam(lake, random_choice, seed=task, score=score_of_one, **numbers)
        assert_alike(found, task, twin, members)


def test_a_task_does_not_depend_on_other_tasks_and_environments_stay_where_they_are():
    many = batch_of("FrozenLake", 9, **LAKES)
    numbers = {"width": 4, "branching": 3, "depth": 7}
    together = array_beam(many, randomly, seeds=range(9), **numbers)
    alone = array_beam(many.take(np.array([5])), randomly, seeds=[5], **numbers)
    for one, other in zip(alone.tree, together.tree, strict=True):
        assert np.array_equal(one[0], other[5])
    assert alone.chosen[0].tolist() == together.chosen[5].tolist()
    envs = batch_of("FrozenLake", 3, **LAKES)
    before = envs.snapshot()
    array_beam(envs, randomly, width=2, branching=2, depth=5, seeds=range(3))
    assert envs.snapshot() == before


def test_where_the_episode_has_ended_nothing_grows():
    envs = batch_of("Sokoban", 2, level="#####\n#@$.#\n#####", autoreset_mode="Disabled")
    envs.fork(0, [1])
    envs.step([3, 0])
    found = array_beam(envs, lambda batch, request: request.numbers, width=2, branching=4, depth=3, seeds=[0, 1])
    assert (found.tree.actions[0] == -1).all()
    assert found.actions[0, 0] == -1
    assert found.returns.tolist() == [0.0, pytest.approx(10.9)]
    assert (found.chosen[0].tolist(), found.actions[1].tolist()[0]) == ([0, -1], 3)


def test_actions_and_scores_of_any_numbers_will_do():
    envs, numbers = batch_of("Sokoban", 3, **ROOMS), {"width": 2, "branching": 3, "depth": 4, "seeds": range(3)}
    small = {"score": lambda batch, rewards: (rewards * 4).astype(np.int32)}
    small = array_beam(envs, lambda batch, request: randomly(batch, request).astype(np.int8), **small, **numbers)
    large = array_beam(envs, randomly, score=lambda batch, rewards: np.trunc(rewards * 4), **numbers)
    assert all(np.array_equal(one, other) for one, other in zip(small.tree, large.tree, strict=True))
    with pytest.raises(InvalidAction):
        array_beam(envs, lambda batch, request: np.zeros(batch.num_envs), **numbers)


def test_policies_are_told_which_actions_count():
    seen = []

    def watch(batch, request):
        seen.append(request.wanted.copy())
        return request.numbers

    array_beam(batch_of("Sokoban", 1, **ROOMS), watch, width=2, branching=4, depth=2, seeds=[0])
    # At the root there is one path; of the two rows of four, one counts.
    assert [wanted.tolist() for wanted in seen] == [[True] * 4 + [False] * 4, [True] * 8]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"width": 0}, "wanted width as a whole number"),
        ({"depth": 2.5}, "wanted depth as a whole number"),
        ({"noise": "loud"}, "wanted noise of"),
        ({"score_of": "request"}, "wanted score_of"),
        ({"seeds": [1]}, "wanted one seed for each of 2 tasks"),
    ],
)
def test_impossible_numbers_are_refused(changed, message):
    numbers = {"width": 2, "branching": 2, "depth": 2, "seeds": [0, 1], **changed}
    with pytest.raises(ValueError, match=message):
        array_beam(batch_of("Sokoban", 2, **ROOMS), randomly, **numbers)
