"""Exact values of play on the ice, against played episodes, enumeration and published numbers."""

from functools import cache
from itertools import product

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym  # noqa: F401 (registers the worlds)
from tsr_gym import ConfigError, InvalidLevel, Limits
from tsr_gym_envs.frozen_lake.rules import ACTIONS, FrozenLakeState, Ice
from tsr_gym_envs.frozen_lake.values import (
    best_value,
    blind_value,
    is_feasible,
    optimal_turn,
    policy_value,
    random_success,
    random_values,
    read_turn,
    spread,
    step_chances,
    success_ceiling,
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
        chances = spread(LAKE, np.eye(9)[cell], actions, ice=Ice(rate))
        expected = enumerated(LAKE, rate, cell, actions)
        assert chances == pytest.approx([expected.get(there, 0.0) for there in range(9)], abs=1e-12)


def test_holes_and_goals_keep_the_player_and_a_step_is_worth_its_three_outcomes():
    chances = step_chances(LAKE, THIRD)
    assert chances.sum(axis=2) == pytest.approx(np.ones((4, 9)))
    assert chances[:, 4, 4].tolist() == chances[:, 8, 8].tolist() == [1.0] * 4
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
    # 1,000 episodes: four standard deviations are at most 0.064.
    assert play(turns, 1000, limits) == pytest.approx(exact, abs=0.064)


def test_blind_turns_are_worth_their_actions_one_after_the_other():
    limits = Limits(4, 3, 6)
    cut = enumerated(LAKE, 1 / 3, 0, (2, 1, 2, 1, 3))
    assert blind_value(FrozenLakeState(LAKE, 0), ODD[:4], ice=THIRD, limits=limits) == pytest.approx(cut[8], abs=1e-12)
    # The fourth turn is the last, the sixth action the last.
    whole = enumerated(LAKE, 1 / 3, 0, (2, 1, 2, 1, 3, 2))
    turns = (*ODD[:3], "Right || Right")
    exact = blind_value(FrozenLakeState(LAKE, 0), (*turns, "Down"), ice=THIRD, limits=limits)
    assert exact == pytest.approx(whole[8], abs=1e-12)


def uniform(max_actions):
    """Return the policy that plays all lengths equally often, and all sequences of a length equally often."""

    def policy(state, turns_left, actions_left):
        texts = {}
        for length in range(1, max_actions + 1):
            for names in product(ACTIONS, repeat=length):
                texts[" || ".join(names)] = 1 / max_actions / 4**length
        return texts

    return policy


@pytest.mark.parametrize("limits", [Limits(2, 2, 3), Limits(3, 2, 4), Limits(3, 1, 10)], ids=str)
def test_random_turns_are_worth_the_same_enumerated_and_multiplied(limits):
    most = limits.max_actions_per_turn
    values = random_values(LAKE, limits.max_turns, limits.max_actions, max_actions=most, ice=THIRD)
    policy = uniform(most)
    for cell in range(9):
        exact = policy_value(FrozenLakeState(LAKE, cell), policy, ice=THIRD, limits=limits)
        assert values[cell] == pytest.approx(exact, abs=1e-12)


def test_turns_with_too_many_sequences_and_malformed_maps_are_refused():
    feasible = {(10, 5, 6): True, (10, 5, 7): False, (10, 5, None): False, (10, None, None): True, (None, 5, 5): False}
    assert {limits: is_feasible(*limits) for limits in feasible} == feasible
    with pytest.raises(ConfigError, match=r"at most 6 actions in a turn.*got 7: set max_actions_per_turn"):
        success_ceiling(["SG"], max_actions=10, max_turns=2, max_actions_per_turn=7)
    env = gym.make("tsr/FrozenLake-v0", max_actions_per_turn=7)
    env.reset(seed=1)
    assert env.unwrapped.optimal_turn(env.unwrapped.state, 5, 10) is None
    assert env.unwrapped.success_bars(env.unwrapped.state) is None
    for function in (success_ceiling, random_success):
        with pytest.raises(InvalidLevel):
            function(["SFF"])


def test_the_best_policy_is_worth_the_ceiling():
    limits = Limits(3, 2, 5)

    def best(state, turns_left, actions_left):
        left = {"turns_left": turns_left, "actions_left": actions_left}
        return {" || ".join(optimal_turn(state.desc, state.position, ice=THIRD, **left, max_actions_per_turn=2)): 1.0}

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


TINY = [["SFG"], ["SF", "HG"], ["SHG", "FFF"], ["FS", "GH"], ["SFS", "FHF", "GFF"], ["GSG"]]


def brute_force(desc, rate, max_actions, max_turns, per_turn):
    """Return the best chance of success by trying every sequence of every turn, on Gymnasium's own table."""
    table = gym.make("FrozenLake-v1", desc=desc, success_rate=rate).unwrapped.P
    letters = "".join(desc)

    def after(sequence, cell):
        where, won = {cell: 1.0}, 0.0
        for action in sequence:
            spread = {}
            for here, chance in where.items():
                for probability, there, _, ended in table[here][action]:
                    if not ended:
                        spread[there] = spread.get(there, 0.0) + chance * probability
                    elif letters[there] == "G":
                        won += chance * probability
            where = spread
        return won, where

    @cache
    def best(cell, turns, actions):
        if actions == 0 or turns == 0:
            return 0.0
        longest = 1 if turns is None else min(actions, per_turn or actions)
        values = []
        for length in range(1, longest + 1):
            for sequence in product(range(4), repeat=length):
                won, where = after(sequence, cell)
                later = None if turns is None else turns - 1
                values.append(won + sum(p * best(there, later, actions - length) for there, p in where.items()))
        return max(values)

    starts = [cell for cell, letter in enumerate(letters) if letter == "S"]
    return sum(best(start, max_turns, max_actions) for start in starts) / len(starts)


@pytest.mark.parametrize("desc", TINY, ids="/".join)
@pytest.mark.parametrize("limits", [(4, None, None), (4, 2, 2), (5, 2, 3), (3, 1, None), (4, 3, 1)], ids=str)
def test_the_ceiling_is_what_brute_force_finds(desc, limits):
    max_actions, max_turns, per_turn = limits
    for rate in (1 / 3, 0.8, 1.0):
        settings = {"max_actions": max_actions, "max_turns": max_turns, "max_actions_per_turn": per_turn}
        came = success_ceiling(desc, success_rate=rate, **settings)
        assert came == pytest.approx(brute_force(desc, rate, max_actions, max_turns, per_turn), abs=1e-12)


@pytest.mark.parametrize("limits", [(4, None, None), (4, 2, 2), (3, 1, None), (2, 3, 1)], ids=str)
def test_the_value_of_a_cell_is_the_ceiling_of_a_lake_that_starts_there(limits):
    desc = "FFF/FHF/GFF"
    max_actions, max_turns, per_turn = limits
    for cell in (0, 1, 2, 3, 5, 7, 8):
        moved = list(desc)
        moved[cell + cell // 3] = "S"
        expected = brute_force("".join(moved).split("/"), 1 / 3, max_actions, max_turns, per_turn)
        left = {"turns_left": max_turns, "actions_left": max_actions, "max_actions_per_turn": per_turn}
        assert best_value(("SFF", "FHF", "GFF"), cell, ice=THIRD, **left) == pytest.approx(expected, abs=1e-12)


def test_the_environment_values_states_under_its_limits():
    limits = {"max_turns": 3, "max_actions_per_turn": 2, "max_actions": 4}
    env = gym.make("tsr/FrozenLake-v0", desc=["SFG", "HFF"], **limits).unwrapped
    env.reset(seed=0)
    start = env.state
    for turns, actions in ((3, 4), (2, 4), (2, 3), (1, 1), (0, 4), (3, 0)):
        expected = brute_force(["SFG", "HFF"], 1 / 3, actions, turns, 2)
        assert env.best_value(start, turns, actions) == pytest.approx(expected, abs=1e-12)
    # A player on a goal has won and a player in a hole has lost, with any number of turns left.
    assert [env.best_value(start._replace(position=cell), 0, 0) for cell in (1, 2, 3)] == [0.0, 1.0, 0.0]
    assert env.best_value(start._replace(position=3), 3, 4) == 0.0
    assert env.best_value(start, 3, None) is None
    endless = gym.make("tsr/FrozenLake-v0", desc=["SFG"], max_actions_per_turn=7).unwrapped
    endless.reset(seed=0)
    assert endless.best_value(endless.state, 5, 10) is None


CEILINGS = {
    "closed10": {"max_actions": 10},
    "turn5x5_10": {"max_actions": 10, "max_turns": 5, "max_actions_per_turn": 5},
    "turn5_2each": {"max_actions": 10, "max_turns": 5, "max_actions_per_turn": 2},
    "single_turn5": {"max_actions": 5, "max_turns": 1},
    "closed25": {"max_actions": 25},
    "closed100": {"max_actions": 100},
}


@pytest.mark.parametrize("name", ["ragen_val256", "gym256"])
def test_ceilings_and_random_play_agree_with_another_program(golden, name):
    for row in golden(f"frozen_lake/frozenlake_ceiling_{name}.jsonl")[::4]:
        for column, limits in CEILINGS.items():
            assert success_ceiling(row["desc"], **limits) == pytest.approx(row[column], abs=1e-9), column
        assert random_success(row["desc"]) == pytest.approx(row["rand"], abs=1e-9)


def test_the_bars_respect_all_limits_of_an_environment():
    env = gym.make("tsr/FrozenLake-v0", desc=["SFG"], is_slippery=False, max_turns=1, max_actions_per_turn=1)
    env.reset(seed=1)
    # One action cannot reach the goal two fields away.
    assert env.unwrapped.success_bars(env.unwrapped.state) == (0.0, 0.0)
    env = gym.make("tsr/FrozenLake-v0", desc=["SFG"], is_slippery=False, max_turns=1, max_actions_per_turn=2)
    env.reset(seed=1)
    assert env.unwrapped.success_bars(env.unwrapped.state) == (1 / 16, 1.0)


def test_a_best_turn_is_short_and_heads_away_from_the_hole():
    turn = optimal_turn(("SFG",), 0, ice=Ice(1.0), turns_left=5, actions_left=10, max_actions_per_turn=5)
    assert turn == ("Right", "Right")
    closed = optimal_turn(("SFG",), 0, ice=Ice(1.0), turns_left=None, actions_left=10, max_actions_per_turn=5)
    assert closed in [(name,) for name in ACTIONS]
    # From the middle cell, walking along the wall side risks the hole below only sideways: Up cannot slip into it.
    values = {}
    for action, name in enumerate(ACTIONS):
        table = gym.make("FrozenLake-v1", desc=["FSF", "FHF", "FGF"], success_rate=1 / 3).unwrapped.P
        values[name] = sum(p for p, cell, _, _ in table[1][action] if cell == 4)
    turn = optimal_turn(("FSF", "FHF", "FGF"), 1, ice=Ice(1 / 3), turns_left=9, actions_left=9, max_actions_per_turn=1)
    assert values[turn[0]] == min(values.values()) == 0.0
