"""Whether a position can be won, against breadth-first search and against trying every turn."""

from functools import cache
from itertools import product

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tsr_gym  # noqa: F401 (registers the worlds)
from tests.tsr_gym_envs.sokoban.boards import boards, fewest_moves, state_of
from tsr_gym.errors import MissingExtra
from tsr_gym.state_env import NO_NOISE
from tsr_gym_envs.sokoban import oracle, values
from tsr_gym_envs.sokoban.levels import parse_level
from tsr_gym_envs.sokoban.rules import ACTIONS
from tsr_gym_envs.sokoban.values import best_value

SMALL = "######\n#@ $.#\n######"
CORNER = "######\n#$ @.#\n######"


@settings(deadline=None, max_examples=40)
@given(rows=boards(max_side=3, max_boxes=2), most=st.none() | st.integers(0, 8))
def test_a_position_is_worth_one_where_its_shortest_solution_fits(rows, most):
    moves = fewest_moves(rows)
    wanted = float(moves is not None and (most is None or moves <= most))
    assert best_value(state_of(rows), most) == wanted


@settings(deadline=None, max_examples=40)
@given(rows=boards(max_side=3, max_boxes=2), most=st.none() | st.integers(0, 8))
def test_without_the_table_bound_and_solver_say_the_same(rows, most):
    state = state_of(rows)
    known = best_value(state, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "distance_table", lambda level: None)
        assert best_value(state, most) == known


def test_where_the_solver_gives_up_nobody_knows(monkeypatch):
    monkeypatch.setattr(oracle, "distance_table", lambda level: None)
    state = parse_level("#######\n#@    #\n# $$  #\n#   ..#\n#######")
    assert best_value(state, None) == 1.0
    assert best_value(state, None, max_nodes=1) is None
    # A bound needs no search.
    assert best_value(state, 1, max_nodes=1) == 0.0


def test_a_solution_longer_than_any_score_of_a_deadlock_is_no_deadlock(monkeypatch):
    monkeypatch.setattr(oracle, "distance_table", lambda level: None)
    corridor = parse_level("#" * 60 + "\n#@$" + " " * 55 + ".#\n" + "#" * 60)
    assert best_value(corridor, 56) == 1.0
    assert best_value(corridor, 55) == 0.0


def test_a_large_board_needs_the_extra(monkeypatch):
    def missing(package, extra):
        raise MissingExtra(package, extra)

    monkeypatch.setattr(values, "require", missing)
    monkeypatch.setattr(oracle, "distance_table", lambda level: None)
    with pytest.raises(MissingExtra, match="envs"):
        best_value(parse_level(SMALL), 5)
    # What is solved or plainly lost needs nothing.
    assert best_value(parse_level(CORNER), 5) == 0.0


def by_trying(env, state, turns_left, actions_left):
    """Return whether some turns of the environment solve a position, each tried with every sequence of actions."""

    @cache
    def can(state, turns, actions):
        if env.is_success(state):
            return True
        if turns == 0 or actions == 0:
            return False
        for length in range(1, min(env.limits.max_actions_per_turn, actions) + 1):
            for names in product(ACTIONS, repeat=length):
                after = state
                for name in names:
                    # A turn ends where the room is solved.
                    after = after if env.is_success(after) else env.transition(after, name, NO_NOISE).state
                if can(after, turns - 1, actions - length):
                    return True
        return False

    return float(can(state, turns_left, actions_left))


def test_the_environment_counts_turns_and_actions():
    limits = {"max_turns": 3, "max_actions_per_turn": 2, "max_actions": 5}
    env = gym.make("tsr/Sokoban-v0", **limits).unwrapped
    seen = set()
    for seed in range(12):
        env.reset(seed=seed)
        for turns, actions in ((3, 5), (2, 3), (1, 2), (3, 1), (0, 5), (1, 5)):
            wanted = by_trying(env, env.state, turns, actions)
            assert env.best_value(env.state, turns, actions) == wanted, (seed, turns, actions)
            seen.add(wanted)
    assert seen == {0.0, 1.0}


def test_what_is_solved_stays_won_and_what_is_lost_stays_lost():
    env = gym.make("tsr/Sokoban-v0", level=SMALL).unwrapped
    env.reset(seed=0)
    assert env.best_value(env.state, 5, 10) == 1.0
    assert env.best_value(env.state, 5, 1) == 0.0
    env.step("Right || Right")
    assert env.best_value(env.state, 0, 0) == 1.0
    env.reset(options={"level": CORNER})
    assert env.best_value(env.state, None, None) == 0.0
