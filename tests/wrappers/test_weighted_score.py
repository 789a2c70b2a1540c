"""WeightedScore: sums by hand, and scores of states among scores of turns."""

from functools import partial

import gymnasium as gym
import pytest

from tests.tsr_gym.testing.worlds import Walk
from tests.tsr_gym_envs.retrieval_qa.fakes import qa
from tsr_gym import ConfigError, Limits, clone, restore, snapshot
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import naive
from tsr_gym.wrappers import (
    AnswerFormat,
    FrozenLakeScore,
    RetrievalQAScore,
    ScoreWrapper,
    SokobanScore,
    TreeSearchWrapper,
    WebShopScore,
)
from tsr_gym.wrappers.score_wrapper import RewardScore
from tsr_gym.wrappers.scorers import PotentialScore, WeightedScore


class Step(ScoreWrapper):
    """Fields gained: a score of turns."""

    def score(self, before, action, after, reward):
        return after.position - before.position


class Gap(ScoreWrapper):
    """Minus the way to the goal: a score of states."""

    score_of = "state"

    def score(self, before, action, after, reward):
        return after.position - after.goal


def walk(parts):
    env = WeightedScore(Walk(), parts)
    env.reset(seed=1)
    return env


def test_the_sum_is_weighted_and_every_part_is_in_sight():
    info = walk({"reward": (RewardScore, 10), "fields": (Step, -0.5)}).step("Right || Right")[4]
    # Two steps cost 0.2: 10 * -0.2 - 0.5 * 2.
    assert info["scores"] == {"reward": pytest.approx(-0.2), "fields": 2.0}
    assert info["score"] == pytest.approx(-3.0)


def test_scores_of_states_alone_make_a_score_of_states():
    env = walk({"gap": (Gap, 2.0), "again": (Gap, 1.0)})
    assert env.score_of == "state"
    goal = env.unwrapped.state.goal
    assert env.step("Right")[4]["score"] == 3.0 * (1 - goal)
    assert env.rate_state(env.unwrapped.state) == 3.0 * (1 - goal)


def test_among_scores_of_turns_a_state_counts_by_what_the_turn_gained():
    env = walk({"reward": (RewardScore, 1.0), "gap": (Gap, 2.0)})
    assert env.score_of == "turn"
    goal = env.unwrapped.state.goal
    infos = [env.step(turn)[4] for turn in ("Right || Right", "Left", "junk")]
    assert [info["scores"]["gap"] for info in infos] == [2.0 - goal, 1.0 - goal, 1.0 - goal]
    assert [info["score"] for info in infos] == pytest.approx([-0.2 + 4.0, -0.1 - 2.0, 0.0])


def test_a_mixed_sum_ranks_paths_as_the_sum_of_what_the_parts_mean():
    parts = {"reward": (RewardScore, 3.0), "near": (partial(FrozenLakeScore, hole_penalty=2.0), 0.5)}
    env = TreeSearchWrapper(WeightedScore(gym.make("tsr/FrozenLake-v0"), parts))
    env.reset(seed=5)
    tree = env.search(
        RandomPolicy(("Left", "Down", "Right", "Up"), 2, form="{}"), lambda tree: naive(tree, rollouts=30)
    )
    assert tree.score_of == "turn"
    ends = tree.leaves()
    meant = {
        end: 3.0 * sum(tree.nodes[node].info["scores"]["reward"] for node in tree.path(end)[1:])
        + 0.5 * tree.nodes[end].info["scores"]["near"]
        for end in ends
    }
    constant = {round(tree.merit(end) - meant[end], 9) for end in ends}
    assert len(constant) == 1
    assert len({round(worth, 9) for worth in meant.values()}) >= 4


def test_a_score_of_states_that_looks_at_the_reward_cannot_be_mixed():
    class Paid(ScoreWrapper):
        score_of = "state"

        def score(self, before, action, after, reward):
            return reward

    env = walk({"paid": (Paid, 1.0), "fields": (Step, 1.0)})
    with pytest.raises(ConfigError, match="depends on the turn's reward"):
        env.step("Right")
    assert walk({"paid": (Paid, 2.0)}).step("Right")[4]["score"] == pytest.approx(-0.2)


def test_a_sum_can_be_a_part_and_the_potential_of_others():
    inner = partial(WeightedScore, parts={"gap": (Gap, 2.0)})
    env = walk({"inner": (inner, 1.0), "fields": (Step, 1.0)})
    assert env.step("Right || Right")[4]["score"] == 4.0 + 2.0
    shaped = PotentialScore(Walk(), inner(Walk()).rate_state, reward=False)
    shaped.reset(seed=1)
    assert shaped.step("Right")[4]["score"] == 2.0


def test_parts_are_told_that_the_episode_ended():
    constant = partial(PotentialScore, potential=lambda state: 5.0, reward=False)
    env = WeightedScore(Walk(limits=Limits(max_turns=2)), {"potential": (constant, 1.0)})
    env.reset(seed=1)
    assert [env.step("Right")[4]["score"] for _ in range(2)] == [0.0, -5.0]


def test_the_parts_of_every_world_are_themselves_in_a_sum(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path))
    moves = partial(SokobanScore, potential="estimate")
    worlds = [
        (gym.make("tsr/Sokoban-v0"), moves, "Left || Up"),
        (gym.make("tsr/FrozenLake-v0", is_slippery=False), FrozenLakeScore, "Left || Up"),
        (gym.make("tsr/WebShop-v0", num_products=20), WebShopScore, "search[socks]"),
        (qa(), partial(RetrievalQAScore, kind="supporting"), "<search>Velden town</search>"),
        (qa(), partial(RetrievalQAScore, kind="novelty"), "<search>Velden town</search>"),
    ]
    for bare, scorer, turn in worlds:
        alone = scorer(bare)
        alone.reset(seed=4)
        wanted = alone.step(turn)[4]["score"]
        summed = WeightedScore(bare, {"alone": (scorer, 1.0), "reward": (RewardScore, 1.0)})
        summed.reset(seed=4)
        start = bare.unwrapped.state
        _, reward, *_, info = summed.step(turn)
        assert info["scores"] == {"alone": wanted, "reward": reward}
        gained = wanted - (alone.rate_state(start) if alone.score_of == "state" else 0.0)
        assert info["score"] == pytest.approx(gained + reward)


def test_snapshots_clones_and_specs_carry_it():
    parts = {"moves": ("SokobanScore(potential='estimate')", 0.5), "near": (SokobanScore, 1.0)}
    env = AnswerFormat(WeightedScore(gym.make("tsr/Sokoban-v0"), parts), think=False)
    env.reset(seed=3)
    before = snapshot(env)
    first = env.step("<answer>Up || Left</answer>")
    restore(env, before)
    twin, again = clone(env), gym.make(env.spec)
    again.reset(seed=3)
    for one in (env, twin, again):
        assert one.step("<answer>Up || Left</answer>") == first


def test_a_configuration_names_it_as_text():
    text = (
        "tsr_gym.wrappers.scorers:WeightedScore(parts={'reward': ('FrozenLakeScore(hole_penalty=2)', 2), "
        "'gain': ('tsr_gym.wrappers.scorers:PotentialScore(potential=\"FrozenLakeScore\", reward=False)', 1)})"
    )
    settings = {"desc": ["SFF", "FFG"], "is_slippery": False}
    (env,) = EnvPool("frozen_lake", settings, score=text).set([1])
    info = env.step("<think></think><answer>Right</answer>")[4]
    # The distance falls from 3 to 2: 2 * 1 for the state among turns, and 1 for the gain.
    assert info["scores"] == {"reward": -2.0, "gain": 1.0}
    assert info["score"] == 3.0
    assert env.tree.score_of == "turn"


def test_no_parts_are_refused():
    with pytest.raises(ConfigError, match="at least one part"):
        WeightedScore(Walk(), {})
