"""Replay: a tree that was grown here comes out bit for bit, and a node that was changed is named."""

import json
from functools import partial

import gymnasium as gym
import pytest

from tsr_gym import ConfigError, InvalidTree, Tree
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, RewardScore, SokobanScore, TreeSearchWrapper
from tsr_gym.wrappers.replay import Replayed, replay, stack_of

SCORES = {"tsr/Sokoban-v0": SokobanScore, "tsr/FrozenLake-v0": FrozenLakeScore}


def grown(name, noise="fresh", repeats=1):
    """Return a tree with an episode that was played and turns that were imagined."""
    stack = SCORES[name](AnswerFormat(gym.make(name, max_turns=3), penalty=0.25))
    env = TreeSearchWrapper(stack, noise=noise, repeats=repeats)
    env.reset(seed=3)
    return env.rollout(RandomPolicy(env.unwrapped.actions), partial(beam, width=2, branching=5, depth=2))


def saved(tree, folder, snapshots=True):
    tree.save(folder / "tree.jsonl", snapshots=snapshots)
    return Tree.load(folder / "tree.jsonl")


@pytest.mark.parametrize("snapshots", [True, False], ids=["with snapshots", "without"])
@pytest.mark.parametrize(
    ("name", "noise", "repeats"),
    [
        ("tsr/Sokoban-v0", "fresh", 1),
        ("tsr/FrozenLake-v0", "fresh", 1),
        ("tsr/FrozenLake-v0", "common", 1),
        ("tsr/FrozenLake-v0", "same", 1),
        ("tsr/FrozenLake-v0", "fresh", 3),
    ],
)
def test_a_tree_comes_out_bit_for_bit(tmp_path, name, noise, repeats, snapshots):
    tree = saved(grown(name, noise, repeats), tmp_path, snapshots)
    assert replay(tree, stack_of(tree)) == Replayed(len(tree.nodes), None)
    assert len(tree.nodes) > 10


def changed(tree, folder, node, **fields):
    """Return a tree in whose file a node was changed."""
    tree.save(folder / "changed.jsonl")
    lines = (folder / "changed.jsonl").read_text().splitlines()
    lines[node + 1] = json.dumps(json.loads(lines[node + 1]) | fields)
    (folder / "changed.jsonl").write_text("\n".join(lines) + "\n")
    return Tree.load(folder / "changed.jsonl")


@pytest.mark.parametrize(
    ("field", "value"), [("reward", 7.5), ("observation", "nothing"), ("truncated", True), ("score", 40.0)]
)
def test_the_first_node_that_differs_is_named_with_what_was_saved_and_what_came(tmp_path, field, value):
    whole = grown("tsr/FrozenLake-v0")
    tree = changed(whole, tmp_path, 4, **{field: value})
    difference = replay(tree, stack_of(tree)).difference
    assert difference == (4, field, value, json.loads(json.dumps(getattr(whole.nodes[4], field))))


def test_another_turn_than_the_one_that_was_taken_is_noticed(tmp_path):
    whole = grown("tsr/Sokoban-v0")
    other = "Left" if "Left" not in whole.nodes[2].candidate.text else "Right"
    tree = changed(whole, tmp_path, 2, candidate=[f"<think></think><answer>{other}</answer>", [], [], []])
    assert replay(tree, stack_of(tree)).difference.node == 2


def test_scores_of_a_rater_can_be_left_out(tmp_path):
    tree = changed(grown("tsr/FrozenLake-v0"), tmp_path, 4, score=40.0)
    assert replay(tree, stack_of(tree)).difference.field == "score"
    # Only nodes below the changed one add its score up, and no other field of theirs changes.
    assert replay(tree, stack_of(tree), scores=False).difference is None


def test_environments_of_others_are_replayed_too(tmp_path):
    env = TreeSearchWrapper(RewardScore(gym.make("CartPole-v1")))
    env.reset(seed=1)
    env.step(1)
    env.expand(1, [0, 1, 1])
    tree = saved(env.tree, tmp_path)
    assert replay(tree, stack_of(tree)) == Replayed(5, None)


def test_a_file_makes_nothing_but_registered_environments_and_known_wrappers(tmp_path):
    tree = grown("tsr/Sokoban-v0")
    tree.about["stack"]["wrappers"][0] = {"entry_point": "os:system", "kwargs": {"command": "true"}}
    with pytest.raises(ConfigError, match=r"os:system.*in Python"):
        stack_of(tree)
    tree.about["stack"]["wrappers"][0] = {"entry_point": "tsr_gym.wrappers.scorers:make_scorer", "kwargs": {}}
    with pytest.raises(ConfigError, match="is no wrapper"):
        stack_of(tree)


@pytest.mark.parametrize("stack", [None, {}, {"wrappers": 3}, {"kwargs": {"wings": 2}}], ids=str)
def test_a_tree_that_does_not_say_how_it_was_grown_is_refused(stack):
    tree = grown("tsr/Sokoban-v0")
    tree.about["stack"] = stack if not stack else tree.about["stack"] | stack
    with pytest.raises(ConfigError, match=r"how its environment was made|cannot be made|unknown settings"):
        stack_of(tree)


def test_dice_that_no_tree_has_are_refused():
    tree = grown("tsr/Sokoban-v0")
    tree.about["repeats"] = "many"
    with pytest.raises(InvalidTree, match="many"):
        replay(tree, stack_of(tree))
