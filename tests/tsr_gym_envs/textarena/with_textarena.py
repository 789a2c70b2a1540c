"""TextArena's games under our contract. Not collected by itself; `make test-textworld` runs it."""

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym
from tsr_gym import ConfigError
from tsr_gym.testing import check_snapshot
from tsr_gym_envs.zmachine.child import InterpreterFailed

MOVES = {
    "TowerOfHanoi-v0": ["[A B]", "[A C]", "[B C]", "[A B]"],
    "2048-v0": ["[up]", "[left]", "[down]", "[right]", "[up]"],
    "FifteenPuzzle-v0": ["[up]", "[left]", "[down]", "[right]"],
}


def played(env, moves):
    """Return the results of moves until the game is over, as it is after a forbidden move."""
    found = []
    for move in moves:
        found.append(env.step(move)[:4])
        if any(found[-1][2:]):
            break
    return found


@pytest.mark.parametrize("game", MOVES)
def test_snapshots_are_exact_here_and_in_other_processes(game):
    check_snapshot(gym.make("tsr/TextArena-v0", game=game), seeds=(3,))


@pytest.mark.parametrize("game", MOVES)
def test_going_back_plays_the_same_again_whatever_was_played_between(game):
    env = gym.make("tsr/TextArena-v0", game=game, disable_env_checker=True).unwrapped
    env.reset(seed=4)
    env.step(MOVES[game][0])
    snap = env.snapshot()
    first = played(env, MOVES[game])
    env.reset(seed=9)
    env.step(MOVES[game][1])
    env.restore(snap)
    assert played(env, MOVES[game]) == first


def test_fresh_dice_are_those_of_their_seed():
    env = gym.make("tsr/TextArena-v0", game="2048-v0", disable_env_checker=True).unwrapped
    env.reset(seed=4)
    snap, seen = env.snapshot(), []
    for seed in (*range(8), 0):
        tsr_gym.restore(env, snap, noise="fresh", seed=seed)
        seen.append(played(env, MOVES["2048-v0"]))
    assert seen[0] == seen[-1]
    assert any(one != seen[0] for one in seen)


def test_a_state_that_a_game_does_not_come_back_to_is_an_error():
    env = gym.make("tsr/TextArena-v0", game="2048-v0", disable_env_checker=True).unwrapped
    env.reset(seed=4)
    env.step("[up]")
    forged = env.state._replace(mark="0" * 24)
    with pytest.raises(InterpreterFailed, match="2048-v0 does not repeat itself after 1 turns"):
        env.transition(forged, "[left]", np.random.default_rng(0))


@pytest.mark.parametrize("game", ["NoGame-v0", "TicTacToe-v0"])
def test_what_is_no_game_for_one_player_is_refused(game):
    with pytest.raises(ConfigError, match="does not begin for one player"):
        gym.make("tsr/TextArena-v0", game=game)
