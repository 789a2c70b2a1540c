"""Teaching: good and poor players, in worlds with and without an oracle."""

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Limits, Teaching
from tsr_gym.state_env import left
from tsr_gym.teaching import random_turn, taught_by_oracle


class Shown(Walk):
    """Walk with an oracle that always goes right."""

    def optimal_turn(self, state, turns_left, actions_left):
        return "Right" if turns_left else None


def test_a_world_without_an_oracle_cannot_be_taught_and_one_with_it_can():
    assert Walk().teaching() is None
    teaching = Shown(Limits(5)).teaching()
    assert isinstance(teaching, Teaching)
    assert (teaching.words, teaching.copying, teaching.env_settings) == (None, False, {})


def test_the_teacher_follows_the_oracle_or_takes_a_legal_action():
    rng = np.random.default_rng(0)
    env = Shown(Limits(5))
    env.reset(seed=1)
    assert env.teaching().teacher_turn(env, rng) == "Right"
    without_limit = Shown(Limits())
    without_limit.reset(seed=1)
    assert left(without_limit) == (None, None)
    assert without_limit.teaching().teacher_turn(without_limit, rng) == without_limit.legal_actions(None)[0]


def test_what_is_left_counts_down_with_turns_and_actions():
    env = Shown(Limits(5, 2, 8))
    env.reset(seed=1)
    env.step("Right || Left")
    assert left(env) == (4, 6)


def test_random_turns_hold_every_number_of_actions_equally_often_unless_they_are_single():
    env = Shown(Limits(5, 3))
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    counts = np.bincount([random_turn(env, rng).count("||") + 1 for _ in range(600)], minlength=4)
    assert counts[1:] == pytest.approx([200, 200, 200], abs=45)
    assert {random_turn(env, rng, p_single=1.0) for _ in range(50)} == set(env.actions)
    # Half of the turns are single at random, and a third of the others.
    single = np.mean(["||" not in random_turn(env, rng, p_single=0.5) for _ in range(600)])
    assert single == pytest.approx(0.5 + 0.5 / 3, abs=0.06)


@pytest.mark.parametrize("name", ["tsr/Sokoban-v0", "tsr/FrozenLake-v0"])
def test_grid_worlds_are_taught_in_compact_form_by_their_oracles(name):
    teaching = gym.make(name).unwrapped.teaching()
    assert teaching.env_settings == {"obs_type": "compact"}
    env = gym.make(name, **teaching.env_settings).unwrapped
    rng, solved = np.random.default_rng(0), 0
    for seed in range(5):
        env.reset(seed=seed)
        ended = False
        while not ended:
            *_, terminated, truncated, info = env.step(teaching.teacher_turn(env, rng))
            ended = terminated or truncated
        solved += info["success"]
        assert teaching.accepts(env)
        env.reset(seed=seed)
        *_, info = env.step(teaching.poor_turn(env, rng))
        assert info["action_is_valid"]
    assert solved >= 3


def test_settings_of_a_teaching_are_its_own():
    assert taught_by_oracle(obs_type="compact").env_settings == {"obs_type": "compact"}
    assert taught_by_oracle().env_settings == {}
