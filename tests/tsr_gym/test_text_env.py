"""TextEnv: turns of several actions, the entries of their infos, and teaching with and without an oracle."""

import sys

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import Limits, Step, Teaching
from tsr_gym.errors import EpisodeOver
from tsr_gym.state_env import left
from tsr_gym.teaching import random_turn, taught_by_oracle
from tsr_gym.text_env import MAX_TEXT, split_turn


@pytest.mark.parametrize(
    ("text", "separator", "actions"),
    [
        ("", "||", ()),
        ("  \n ", "||", ()),
        ("Up", "||", ("Up",)),
        (" Up ||\tRight||", "||", ("Up", "Right")),
        ("|| || ||", "||", ()),
        ("Up | Down", "||", ("Up | Down",)),
        ("search[red || shoes]", None, ("search[red || shoes]",)),
        ("  ", None, ()),
        ("Up,Down", ",", ("Up", "Down")),
    ],
)
def test_a_turn_is_split_at_its_separator(text, separator, actions):
    assert split_turn(text, separator) == actions


def started(*limits):
    env = Walk(*limits)
    env.reset(seed=1)
    # The goal of seed 1 is three fields away or more, and the start is 0.
    return env


def test_a_turn_carries_out_its_actions_in_order_and_adds_up_their_rewards():
    env = started()
    observation, reward, terminated, truncated, info = env.step("Right || Right || Left")
    assert observation == f"You are at 1, the goal is at {env.state.goal}."
    assert reward == pytest.approx(-0.3)
    assert (terminated, truncated) == (False, False)
    assert info == {
        "moved": -1,
        "turns_left": 5,
        "actions_left": 7,
        "success": False,
        "action_is_valid": True,
        "action_is_effective": True,
        "executed": ("Right", "Right", "Left"),
    }


def test_an_action_that_means_nothing_is_dropped_and_the_rest_is_carried_out():
    env = started()
    _, reward, _, _, info = env.step("Right || Fly || Right")
    assert env.state.position == 2
    assert reward == pytest.approx(-0.2)
    assert info["executed"] == ("Right", "Right")
    assert info["action_is_valid"] is False
    assert info["actions_left"] == 8


@pytest.mark.parametrize("text", ["", "Fly", "||", "\x00", "\ud800"])
def test_a_turn_without_a_valid_action_costs_a_turn_and_nothing_else(text):
    env = started()
    before = env.state
    _, reward, terminated, truncated, info = env.step(text)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert env.state == before
    assert info["turns_left"] == 5
    assert info["actions_left"] == 10
    assert (info["executed"], info["action_is_valid"], info["action_is_effective"]) == ((), False, False)


def test_a_turn_that_comes_back_to_where_it_began_is_not_effective():
    env = started()
    assert env.step("Right || Left")[4]["action_is_effective"] is False
    assert env.step("Left")[4]["action_is_effective"] is True


def test_actions_beyond_the_limit_of_a_turn_are_dropped_unseen():
    env = started()
    info = env.step("Left || Left || Left || Fly || Left")[4]
    assert info["executed"] == ("Left", "Left", "Left")
    assert info["action_is_valid"] is True


def test_actions_beyond_the_limit_of_the_episode_are_dropped_and_end_it():
    env = started(Limits(max_actions=4))
    assert env.step("Left || Left || Left")[3] is False
    _, _, terminated, truncated, info = env.step("Left || Left || Left")
    assert (terminated, truncated) == (False, True)
    assert info["executed"] == ("Left",)
    assert info["actions_left"] == 0


def test_a_turn_ends_where_the_episode_does():
    env = Walk(Limits())
    env.reset(seed=1)
    goal = env.state.goal
    _, reward, terminated, truncated, info = env.step(" || ".join(["Right"] * (goal + 3)))
    assert (terminated, truncated, info["success"]) == (True, False, True)
    assert len(info["executed"]) == goal
    assert reward == pytest.approx(1 - 0.1 * goal)


def test_success_is_reported_at_reset_too():
    class Solved(Walk):
        def is_success(self, state):
            return True

    assert Solved().reset(seed=1)[1] == {"turns_left": 6, "actions_left": 10, "success": True}


def test_spaces_hold_any_text_and_samples_are_turns():
    env = started()
    assert "x" * MAX_TEXT in env.action_space
    assert "x" * (MAX_TEXT + 1) not in env.action_space
    env.action_space.seed(3)
    samples = [env.action_space.sample() for _ in range(50)]
    assert all(set(split_turn(sample, "||")) <= set(Walk.actions) for sample in samples)
    assert {len(split_turn(sample, "||")) for sample in samples} == {1, 2, 3}


def test_what_a_long_turn_remembers_grows_and_is_never_copied():
    class Watched(Walk):
        """Records the local variables of the function that executes the turn, now and then."""

        seen = ()

        def transition(self, state, action, rng):
            if state.position % 1000 == 999:
                held = sys._getframe(1).f_locals.values()
                # Kept alive, so that no two of them have the same identity.
                self.seen += tuple(item for item in held if isinstance(item, tuple | list) and len(item) >= 999)
            return super().transition(state, action, rng)

        def is_success(self, state):
            return False

    env = Watched(Limits())
    env.reset(seed=1)
    info = env.step(" || ".join(["Right"] * 40_000))[4]
    assert info["executed"] == ("Right",) * 40_000
    # The requested and the executed actions, each made once: copies at every action would take quadratic time.
    assert len(env.seen) == 80
    assert len({id(item) for item in env.seen}) == 2


class Waiting(Walk):
    """A walk in which "Left" is valid, pays and is not executed, and every info has the position."""

    def transition(self, state, action, rng):
        if action == "Left":
            return Step(state, 0.5, False, {"action_is_executed": False})
        return super().transition(state, action, rng)

    def _facts(self, state):
        return {**super()._facts(state), "position": state.position}


def test_an_action_that_is_not_carried_out_pays_and_costs_no_action():
    env = Waiting(Limits(4, 3, 4))
    env.reset(seed=1)
    reward, info = env.step("Left || Right")[1::3]
    assert (reward, info["executed"], info["actions_left"], info["action_is_valid"]) == (0.5 - 0.1, ("Right",), 3, True)
    assert info["position"] == env.step("nonsense")[4]["position"] == env.state.position


def test_an_error_in_a_turn_leaves_the_episode_where_it_was():
    class Failing(Walk):
        def observe(self, state):
            if state.position == 2:
                raise OSError("gone")
            return super().observe(state)

    env = Failing()
    env.reset(seed=1)
    before = env.episode
    with pytest.raises(OSError, match="gone"):
        env.step("Right || Right")
    assert env.episode is before


def test_a_finished_episode_continues_only_where_the_environment_allows_it():
    class Endless(Walk):
        continues_after_end = True

    for env in (Walk(Limits()), Endless(Limits())):
        env.reset(seed=1)
        while not env.step("Right")[2]:
            pass
        if env.continues_after_end:
            assert env.step("Left")[2] is False
        else:
            with pytest.raises(EpisodeOver):
                env.step("Left")


def test_an_over_long_text_is_data():
    env = started()
    assert env.step("Right " * 100_000)[4]["action_is_valid"] is False


def test_an_environment_without_oracle_knows_neither_turns_nor_bars():
    env = started()
    assert env.optimal_turn(env.state, 5, 10) is None
    assert env.success_bars(env.state) is None
    assert env.legal_actions(env.state) == ("Left", "Right", "Jump")


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
