"""Exact values against enumeration on Gymnasium's own table, against each other, and against the dice."""

from itertools import product

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym import ConfigError, Limits
from tsr_gym_envs.frozen_lake.optimal import optimal_turn, random_success, success_ceiling
from tsr_gym_envs.frozen_lake.rules import ACTIONS, FrozenLakeState, Ice
from tsr_gym_envs.frozen_lake.values import (
    blind_value,
    policy_value,
    random_values,
    read_turn,
    spread,
    step_chances,
    turn_value,
)

LAKE = ("SFF", "FHF", "FFG")
THIRD = Ice(1 / 3)
# What a turn may be: blanks, words that mean nothing, more actions than fit.
ODD = ("Right", "down || Right", "jump || Down ||  || UP || Left", "nothing", "Right || Right || Down || Down")


def enumerated(desc, rate, cell, actions):
    """Return {cell: chance} after some actions, outcome by outcome on Gymnasium's table."""
    table = gym.make("FrozenLake-v1", desc=list(desc), success_rate=rate).unwrapped.P
    where = {cell: 1.0}
    for action in actions:
        after = {}
        for here, chance in where.items():
            for probability, there, *_ in table[here][action]:
                after[there] = after.get(there, 0.0) + chance * probability
        where = after
    return where


@pytest.mark.parametrize("rate", [1 / 3, 0.8, 1.0])
@pytest.mark.parametrize("actions", [(), (2,), (1, 2, 0), (2, 2, 1, 1)], ids=str)
def test_where_actions_lead_is_what_enumerating_the_outcomes_gives(rate, actions):
    for cell in range(9):
        start = np.eye(9)[cell]
        found = spread(LAKE, start, actions, ice=Ice(rate))
        wanted = enumerated(LAKE, rate, cell, actions)
        assert found == pytest.approx([wanted.get(there, 0.0) for there in range(9)], abs=1e-12)


def test_holes_and_goals_keep_everyone_and_chances_add_up():
    chances = step_chances(LAKE, THIRD)
    assert chances.sum(axis=2) == pytest.approx(np.ones((4, 9)))
    assert chances[:, 4, 4].tolist() == chances[:, 8, 8].tolist() == [1.0] * 4


def test_one_step_is_worth_what_its_three_outcomes_are():
    # From the cell left of the goal, Right leads up, right into the goal, or against the lower bank.
    worth = np.arange(9, dtype=float)
    assert turn_value(FrozenLakeState(LAKE, 7), (2,), worth, ice=THIRD) == pytest.approx((4 + 8 + 7) / 3)


@pytest.mark.parametrize(
    ("text", "left", "wanted"),
    [
        (ODD[0], 10, (2,)),
        (ODD[1], 1, (1,)),
        # Of three parts that are read, the first means nothing.
        (ODD[2], 10, (1, 3)),
        (ODD[3], 10, ()),
        (ODD[4], None, (2, 2, 1)),
    ],
)
def test_a_turn_is_read_and_cut_as_the_environment_does(text, left, wanted):
    assert read_turn(text, left, Limits(max_actions_per_turn=3)) == wanted


def play(turns, episodes, limits):
    env = gym.make("tsr/FrozenLake-v0", desc=LAKE, **limits)
    wins = 0
    for seed in range(episodes):
        env.reset(seed=seed)
        for text in turns:
            *_, terminated, truncated, info = env.step(text)
            if terminated or truncated:
                break
        wins += info["success"]
    return wins / episodes


@pytest.mark.parametrize("turns", [ODD, ODD[::-1], ("Down", "Down", "Right || Right", "Right")], ids=str)
def test_blind_turns_win_as_often_as_the_environment_lets_them(turns):
    limits = {"max_turns": 4, "max_actions_per_turn": 3, "max_actions": 6}
    exact = blind_value(FrozenLakeState(LAKE, 0), turns, ice=THIRD, limits=Limits(**limits))
    # 4,000 episodes: four standard deviations are at most 0.032.
    assert play(turns, 4000, limits) == pytest.approx(exact, abs=0.032)


def test_blind_turns_are_worth_their_actions_one_after_the_other():
    limits = Limits(4, 3, 6)
    cut = enumerated(LAKE, 1 / 3, 0, (2, 1, 2, 1, 3))
    assert blind_value(FrozenLakeState(LAKE, 0), ODD[:4], ice=THIRD, limits=limits) == pytest.approx(cut[8], abs=1e-12)
    # The fourth turn is the last, the sixth action the last.
    whole = enumerated(LAKE, 1 / 3, 0, (2, 1, 2, 1, 3, 2))
    turns = (*ODD[:3], "Right || Right")
    assert blind_value(FrozenLakeState(LAKE, 0), (*turns, "Down"), ice=THIRD, limits=limits) == pytest.approx(
        whole[8], abs=1e-12
    )


def uniform(max_actions):
    """Return the policy that says every sequence of its length with the same chance, every length equally often."""

    def say(state, turns_left, actions_left):
        texts = {}
        for length in range(1, max_actions + 1):
            for names in product(ACTIONS, repeat=length):
                texts[" || ".join(names)] = 1 / max_actions / 4**length
        return texts

    return say


@pytest.mark.parametrize("limits", [Limits(2, 2, 3), Limits(3, 2, 4), Limits(3, 1, 10)], ids=str)
def test_random_turns_are_worth_the_same_enumerated_and_multiplied(limits):
    values = random_values(
        LAKE, limits.max_turns, limits.max_actions, max_actions=limits.max_actions_per_turn, ice=THIRD
    )
    policy = uniform(limits.max_actions_per_turn)
    for cell in range(9):
        exact = policy_value(FrozenLakeState(LAKE, cell), policy, ice=THIRD, limits=limits)
        assert values[cell] == pytest.approx(exact, abs=1e-12)


def test_single_random_actions_are_the_random_bar():
    values = random_values(LAKE, 10, 10, max_actions=1, ice=THIRD)
    assert values[0] == pytest.approx(random_success(LAKE, max_actions=10), abs=1e-12)


def test_the_best_policy_is_worth_the_ceiling():
    limits = Limits(3, 2, 5)

    def best(state, turns_left, actions_left):
        turn = optimal_turn(
            state.desc,
            state.position,
            ice=THIRD,
            turns_left=turns_left,
            actions_left=actions_left,
            max_actions_per_turn=limits.max_actions_per_turn,
        )
        return {" || ".join(turn): 1.0}

    ceiling = success_ceiling(LAKE, max_actions=5, max_turns=3, max_actions_per_turn=2)
    start = FrozenLakeState(LAKE, 0)
    assert policy_value(start, best, ice=THIRD, limits=limits) == pytest.approx(ceiling, abs=1e-12)
    # Every other policy is worth less.
    assert policy_value(start, uniform(2), ice=THIRD, limits=limits) < ceiling


def test_a_policy_that_talks_nonsense_uses_up_its_turns_and_one_without_end_has_no_value():
    start, limits = FrozenLakeState(LAKE, 7), Limits(2, 1, 5)

    def half_nonsense(state, turns_left, actions_left):
        return {"Right": 1.0} if turns_left == 1 else {"hm": 1.0}

    # One action is left of the two turns: right into the goal one time in three.
    assert policy_value(start, half_nonsense, ice=THIRD, limits=limits) == pytest.approx(1 / 3)
    with pytest.raises(ConfigError, match="a limit of turns"):
        policy_value(start, half_nonsense, ice=THIRD, limits=Limits(max_actions=5))
    with pytest.raises(ConfigError, match=r"add up to 1, got 0\.5"):
        policy_value(start, lambda *_: {"Right": 0.5}, ice=THIRD, limits=limits)
