"""EnvPool: equal environments, set to task instances again and again."""

from typing import Any

import gymnasium as gym
import pytest

from tsr_gym import ConfigError, snapshot
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.wrappers import AnswerFormat, ScoreWrapper, SokobanScore


def standing(env):
    return snapshot(env.env), env.tree.nodes[0].observation, dict(env.tree.nodes[0].info)


def test_every_copy_stands_where_a_reset_with_the_tasks_seed_would():
    envs = EnvPool("sokoban", {"split": "train"}).set([11, 12], copies=3)
    for number, env in enumerate(envs):
        observation, info = gym.make("tsr/Sokoban-v0", split="train").reset(seed=11 + number // 3)
        assert env.tree.nodes[0].observation == observation
        assert dict(env.tree.nodes[0].info) == info
        assert env.step("junk")[4]["turns_left"] == 4


def test_environments_are_used_again_and_copies_share_the_instance_but_not_their_fate():
    pool = EnvPool("frozen_lake", {})
    first = [standing(env) for env in pool.set([1, 2, 3])]
    for env in pool.set([7, 8], copies=2):
        while not env.tree.nodes[env.cursor].done:
            env.step("<think></think><answer>Up</answer>")
    again = pool.set([1, 2, 3])
    assert [standing(env) for env in again] == first
    assert {id(env) for env in again} <= {id(env) for env in pool.set([4] * 4)}
    one, other = EnvPool("frozen_lake", {}).set([5], copies=2)
    assert standing(one) == standing(other)
    one.step("<think></think><answer>Up</answer>")
    assert len(other.tree.nodes) == 1
    assert other.step("<think></think><answer>Up</answer>")[0] == one.tree.nodes[1].observation
    assert EnvPool("sokoban", {}).set([]) == []


def wrappers(env):
    found = []
    while isinstance(env, gym.Wrapper):
        found.append(env)
        env = env.env
    return found


def test_the_stack_is_what_the_configuration_says():
    pool = EnvPool(
        "sokoban", {"num_boxes": 2}, score="SokobanScore(potential='estimate', weight=0.5)", penalty=0.3, think=False
    )
    (env,) = pool.set([1])
    layers = {type(wrapper).__name__: wrapper for wrapper in wrappers(env)}
    assert (layers["SokobanScore"].potential, layers["SokobanScore"].weight) == ("estimate", 0.5)
    assert (layers["AnswerFormat"].penalty, layers["AnswerFormat"].think) == (0.3, False)
    assert pool.base.settings.num_boxes == 2
    assert isinstance(layers["SokobanScore"], SokobanScore)
    assert env.step("no form")[1] == pytest.approx(-0.3)
    assert isinstance(EnvPool("sokoban", {}).set([1])[0].env, AnswerFormat)


def test_a_scorer_of_ones_own_is_named_by_its_module():
    (env,) = EnvPool("sokoban", {}, score="tests.agents.episodes.test_env_pool:Boxes").set([1])
    assert env.tree.score_of == "state"


class Boxes(ScoreWrapper[Any]):
    """Gives the states of any world the same score."""

    score_of = "state"

    def score(self, before, action, after, reward):
        return 1.0


@pytest.mark.parametrize(
    ("env", "settings", "more", "message"),
    [
        ("nonsense", {}, {}, "there is no environment 'nonsense': wanted one of frozen_lake, "),
        ("nowhere:Some-v0", {}, {}, "there is no environment 'nowhere:Some-v0' .*No module named 'nowhere'"),
        ("CartPole-v1", {}, {}, r"wanted an environment of text \(a tsr_gym\.TextEnv\), CartPole-v1 is a CartPoleEnv"),
        ("CartPole-v1", {"preset": "paper"}, {}, "CartPole-v1 cannot be made with .*preset"),
        ("sokoban", {"colour": 1}, {}, r"unknown settings \['colour'\]"),
        ("sokoban", {"split": "exam"}, {}, "wanted split of"),
        ("sokoban", {}, {"score": "NoScore"}, "there is no scorer 'NoScore': did you mean WebShopScore"),
        ("sokoban", {}, {"score": "SokobanScore(3)"}, "wanted keywords only"),
        ("sokoban", {}, {"score": "SokobanScore(mood=3)"}, r"'SokobanScore' has no \['mood'\]; it has \['potential'"),
        ("sokoban", {}, {"score": "SokobanScore(potential='luck')"}, "wanted potential None or of"),
        ("sokoban", {}, {"penalty": -1.0}, "wanted penalty >= 0"),
    ],
)
def test_what_cannot_be_made_is_told_at_once(env, settings, more, message):
    with pytest.raises(ConfigError, match=message):
        EnvPool(env, settings, **more)
