"""Sokoban's arrays: codes cell by cell, padding, and rooms that do not fit."""

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym_envs.sokoban.boards import rows_of
from tsr_gym import ConfigError

ROOM = "  #####\n###  .#\n#@ $* #\n#######"
CODES = [[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 2, 0], [0, 5, 1, 4, 3, 1, 0], [0, 0, 0, 0, 0, 0, 0]]


def room(**settings):
    return gym.make("tsr/Sokoban-v0", **{"obs_type": "array", **settings})


def test_codes_are_those_of_gym_sokoban():
    env = room(level=ROOM)
    observation, info = env.reset(seed=1)
    assert observation.tolist() == CODES
    assert observation.dtype == np.uint8
    assert info == {"turns_left": None, "actions_left": 120, "success": False}


def test_a_step_pays_ends_and_informs_like_the_rules():
    env = room(level="######\n#@$. #\n######", reward_step=-1.0, max_actions=3)
    env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (-1.0, False, False)
    assert info == {
        "action_is_effective": False,
        "turns_left": None,
        "actions_left": 2,
        "success": False,
    }
    observation, reward, terminated, truncated, info = env.step(3)
    assert observation.tolist()[1] == [0, 1, 5, 3, 1, 0]
    assert (reward, terminated, truncated, info["success"]) == (10.0, True, False, True)


def test_the_player_on_a_goal_has_a_code_of_its_own():
    assert room(level="######\n#+$  #\n######").reset()[0].tolist()[1] == [0, 6, 4, 1, 1, 0]


def test_gym_sokobans_own_arrays_are_ours(golden):
    glyphs = {"#": 0, " ": 1, ".": 2, "*": 3, "$": 4, "@": 5, "+": 6}
    env = room(generator="gym-sokoban")
    for row in golden("sokoban/gym_sokoban_6x6_1box_rooms.jsonl")[:30]:
        wanted = [[glyphs[letter] for letter in line] for line in row["rows"]]
        assert env.reset(seed=row["seed"])[0].tolist() == wanted


def test_levels_are_padded_with_wall_to_the_largest_or_to_a_shape(tmp_path):
    boards = ["######\n#@$. #\n######", "#####\n#@$.#\n#   #\n#####"]
    (tmp_path / "levels.xsb").write_text("\n\n".join(boards))
    for settings, shape in (({}, (4, 6)), ({"shape": (7, 8)}, (7, 8)), ({"num_levels": 1}, (3, 6))):
        env = room(levels=str(tmp_path), **settings)
        assert env.observation_space.shape == shape
        for seed in range(6):
            observation, _ = env.reset(seed=seed)
            rows = rows_of(env.unwrapped.state)
            assert (observation == 0).sum() == "".join(rows).count("#") + shape[0] * shape[1] - len(rows) * len(rows[0])
            assert observation[1].tolist()[:4] == [0, 5, 4, 2 if len(rows) else 0]


def test_rooms_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"a shape of at least the largest room's, 6x6, got 5x9"):
        room(shape=(5, 9))
    env = room(level="#####\n#@$.#\n#####")
    with pytest.raises(ConfigError, match="at most 3x5, got 3x6: set a larger shape"):
        env.reset(options={"level": "######\n#@$. #\n######"})
    with pytest.raises(ConfigError, match="shape is the size of boards where actions are discrete"):
        gym.make("tsr/Sokoban-v0", shape=(9, 9))


def test_a_step_and_a_symmetry_commute():
    # Where each view sends up, down, left and right.
    views = [(turns, mirrored) for turns in range(4) for mirrored in (False, True)]
    steps = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    rng = np.random.default_rng(0)
    env, other = room(dim=(7, 6), num_boxes=2, max_actions=None), room(level=ROOM, shape=(7, 7), max_actions=None)
    for seed in range(4):
        for turns, mirrored in views:
            board, _ = env.reset(seed=seed)

            def seen(codes, turns=turns, mirrored=mirrored):
                codes = np.rot90(codes, turns)
                return codes[:, ::-1] if mirrored else codes

            def sent(action, turns=turns, mirrored=mirrored):
                down, right = steps[action]
                for _ in range(turns):
                    down, right = -right, down
                right = -right if mirrored else right
                return int(np.flatnonzero((steps == (down, right)).all(axis=1))[0])

            rows = ["".join("# .*$@+"[code] for code in line) for line in seen(board)]
            other.reset(options={"level": "\n".join(rows)})
            for action in rng.integers(4, size=60).tolist():
                board, *result, info = env.step(action)
                turned, *also, also_info = other.step(sent(action))
                height, width = seen(board).shape
                assert np.array_equal(turned[:height, :width], seen(board))
                assert (result, info["action_is_effective"]) == (also, also_info["action_is_effective"])
                if result[1]:
                    break
