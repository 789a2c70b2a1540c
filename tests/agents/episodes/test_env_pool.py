"""EnvPool: equal environments, set to task instances again and again."""

import gymnasium as gym
import pytest

from tsr_gym import ConfigError, snapshot
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.wrappers import AnswerFormat


def standing(env):
    return snapshot(env.env), env.tree.nodes[0].observation, dict(env.tree.nodes[0].info)


def test_every_copy_stands_where_a_reset_with_the_tasks_seed_would():
    for number, env in enumerate(EnvPool("sokoban", {"split": "train"}).set([11, 12], copies=3)):
        reset = gym.make("tsr/Sokoban-v0", split="train").reset(seed=11 + number // 3)
        assert (env.tree.nodes[0].observation, dict(env.tree.nodes[0].info)) == reset
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
    score = "SokobanScore(potential='estimate', weight=0.5)"
    pool = EnvPool("sokoban", {"num_boxes": 2}, score=score, penalty=0.3, think=False)
    (env,) = pool.set([1])
    layers = {type(wrapper).__name__: wrapper for wrapper in wrappers(env)}
    assert (layers["SokobanScore"].potential, layers["SokobanScore"].weight) == ("estimate", 0.5)
    assert (layers["AnswerFormat"].penalty, layers["AnswerFormat"].think) == (0.3, False)
    assert pool.base.settings.num_boxes == 2
    assert env.step("no form")[1] == pytest.approx(-0.3)
    assert isinstance(EnvPool("sokoban", {}).set([1])[0].env, AnswerFormat)
    # A scorer of one's own is named by its module.
    (env,) = EnvPool("sokoban", {}, score="tests.agents.worlds:LastLetter").set([1])
    assert env.tree.score_of == "state"


@pytest.mark.parametrize(
    ("env", "settings", "more", "message"),
    [
        ("CartPole-v1", {}, {}, r"wanted an environment of text \(a tsr_gym\.TextEnv\), CartPole-v1 is a CartPoleEnv"),
        ("CartPole-v1", {"preset": "paper"}, {}, "CartPole-v1 cannot be made with .*preset"),
        ("sokoban", {"colour": 1}, {}, r"unknown settings \['colour'\]"),
        ("sokoban", {}, {"score": "NoScore"}, "there is no scorer 'NoScore': did you mean WebShopScore"),
        ("sokoban", {}, {"score": "SokobanScore(mood=3)"}, r"'SokobanScore' has no \['mood'\]; it has \['potential'"),
        ("sokoban", {}, {"score": "SokobanScore(potential='luck')"}, "wanted potential None or of"),
        ("sokoban", {}, {"penalty": -1.0}, "wanted penalty >= 0"),
    ],
)
def test_what_cannot_be_made_is_told_at_once(env, settings, more, message):
    with pytest.raises(ConfigError, match=message):
        EnvPool(env, settings, **more)
