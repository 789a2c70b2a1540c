"""The Sokoban environment: words, settings, levels, splits, and observations as text and as arrays."""

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym_envs.sokoban.boards import rows_of, state_of, trimmed, turned
from tsr_gym import ConfigError, InvalidLevel
from tsr_gym_envs.sokoban.env import make
from tsr_gym_envs.sokoban.rules import ACTIONS, OBSERVATIONS

#        0123456
LEVEL = "#######\n#@ $ .#\n#######"
TWO = "#######\n#@$.  #\n# $.  #\n#     #\n#######"


def room(**settings):
    return gym.make("tsr/Sokoban-v0", **settings)


def started(**settings):
    env = room(**settings)
    env.reset(seed=1)
    return env


def test_an_episode_has_the_rewards_of_the_paper():
    env = started(level=LEVEL)
    observation, reward, terminated, truncated, info = env.step("Right || Right")
    assert observation == "#######\n#__PXO#\n#######"
    assert reward == pytest.approx(-0.2)
    assert (terminated, truncated, info["success"]) == (False, False, False)
    observation, reward, terminated, truncated, info = env.step("Right")
    assert observation == "#######\n#___P√#\n#######"
    assert reward == pytest.approx(-0.1 + 1 + 10)
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_rewards_are_keywords_and_a_position_can_be_given_for_one_episode():
    env = started(level=TWO, reward_step=0.5, reward_box=-2.0, reward_done=100.0)
    assert env.step("Right")[1] == 0.5 - 2.0
    assert env.step("Left || Down || Right")[1] == pytest.approx(3 * 0.5 - 2.0 + 100.0)
    env = room(level=LEVEL)
    env.reset(seed=1, options={"level": TWO})
    assert rows_of(env.unwrapped.state) == TWO.split("\n")
    env.reset()
    assert rows_of(env.unwrapped.state) == LEVEL.split("\n")


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 3), ("valid", 1)):
        (tmp_path / split).mkdir()
        floors = [" " * number for number in range(1, count + 1)]
        (tmp_path / split / "000.txt").write_text(
            "\n\n".join(f"#####{'#' * len(f)}\n#@$.{f}#\n#####{'#' * len(f)}" for f in floors)
        )
    return tmp_path


def test_levels_come_from_files_and_depend_on_the_seed(folder):
    env = room(levels=str(folder), split="train")
    seen = set()
    for seed in range(30):
        first = env.reset(seed=seed)[0]
        assert env.reset(seed=seed)[0] == first
        seen.add(first)
    assert len(seen) == 3
    assert room(levels=str(folder), split="valid").reset(seed=1)[0] == "######\n#PXO_#\n######"
    assert room(levels=str(folder / "valid" / "000.txt")).reset(seed=1)[0] == "######\n#PXO_#\n######"


def test_boxoban_levels_can_be_played(shared):
    env = room(levels=str(shared / "data/sokoban/boxoban/unfiltered"), split="valid", max_turns=None, max_actions=None)
    observation, _ = env.reset(seed=3)
    assert observation.count("X") + observation.count("√") == 4
    while not env.unwrapped.state.solved:
        env.step(env.unwrapped.optimal_turn(env.unwrapped.state, None, None))
    assert env.unwrapped.success_bars(env.unwrapped.state) is None


def test_splits_share_no_room_even_when_it_is_turned_mirrored_or_shifted():
    splits_of = {}
    for split in ("train", "valid", "test"):
        env = room(split=split, dim=(5, 5), solution_length=(1, 6))
        for seed in range(40):
            env.reset(seed=seed)
            rows = trimmed(rows_of(env.unwrapped.state))
            for turns in range(4):
                for mirrored in (False, True):
                    splits_of.setdefault(tuple(turned(rows, turns, mirrored)), set()).add(split)
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert {split for splits in splits_of.values() for split in splits} == {"train", "valid", "test"}


def test_optimal_turns_solve_every_room_but_deadlocked_ones():
    env = room()
    for seed in range(40):
        env.reset(seed=seed)
        base = env.unwrapped
        assert base.success_bars(base.state)[1] == 1.0
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(base.optimal_turn(base.state, None, None))
            over = terminated or truncated
        assert info["success"]
    env = started(level="######\n#@ . #\n#    #\n#$   #\n######")
    assert env.unwrapped.optimal_turn(env.unwrapped.state, 5, 10) is None
    assert env.unwrapped.dead_end(env.unwrapped.state) == "dead square"
    assert env.unwrapped.success_bars(env.unwrapped.state) == (0.0, 0.0)


def test_the_bars_respect_all_limits():
    # The solution takes three moves.
    for limits, best in (
        ({"max_actions": 3}, 1.0),
        ({"max_actions": 2}, 0.0),
        ({"max_turns": 1, "max_actions_per_turn": 2}, 0.0),
        ({"max_turns": 2, "max_actions_per_turn": 2}, 1.0),
    ):
        env = started(level=LEVEL, **limits)
        assert env.unwrapped.success_bars(env.unwrapped.state)[1] == best
    env = started(level=LEVEL, max_actions=3)
    assert env.unwrapped.success_bars(env.unwrapped.state)[0] == 1 / 64


def test_a_key_names_walls_goals_boxes_and_player_and_nothing_else():
    base = make()
    boards = {LEVEL, LEVEL.replace("@ ", " @"), LEVEL.replace("$ ", " $"), LEVEL.replace(" .", ". ")}
    boards |= {"#######\n#@#$ .#\n#######", "######\n#@ $.#\n######"}
    assert len({base.state_key(state_of(board.split("\n"))) for board in boards}) == len(boards)
    ragged = state_of(["  ####", "###.@#", "#  $ #", "######"])
    full = state_of(["######", "###.@#", "#  $ #", "######"])
    assert base.state_key(ragged) == base.state_key(full)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "mine"}, r"preset of \['paper', 'tsr-code'\]"),
        ({"split": "dev"}, "wanted split"),
        ({"level": LEVEL, "levels": "x"}, "wanted level or levels, got both"),
        ({"render_mode": "video"}, "wanted a render_mode"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def test_malformed_levels_are_refused_when_they_are_given(tmp_path):
    with pytest.raises(InvalidLevel, match="row 2, column 2"):
        make(level="#####\n#X$.#\n#####")
    with pytest.raises(InvalidLevel, match="no such file"):
        make(levels=str(tmp_path / "nowhere"))
    env = make()
    with pytest.raises(InvalidLevel, match="wanted one player"):
        env.reset(options={"level": "#####\n# $.#\n#####"})
    with pytest.raises(ConfigError, match=r"got \['map'\]"):
        env.reset(options={"map": "x"})


def test_the_presets_are_the_papers_and_its_codes():
    paper, code = room().unwrapped.settings, room(preset="tsr-code").unwrapped.settings
    assert (paper.obs_type, paper.max_actions_per_turn) == ("grid", 5)
    assert (code.obs_type, code.max_actions_per_turn) == ("grid_coord", 2)
    for settings in (paper, code):
        assert (settings.max_turns, settings.max_actions, settings.dim, settings.num_boxes) == (5, 10, (6, 6), 1)
        assert (settings.reward_step, settings.reward_box, settings.reward_done) == (-0.1, 1.0, 10.0)
    assert room().unwrapped.legal_actions(None) == ACTIONS


#       012345
ROOM = ["######", "#@ $ #", "# *# #", "# .  #", "######"]
ON_GOAL = ["#####", "#+$ #", "#  *#", "#####"]
BARE = ["####", "#+$#", "#  #", "####"]

GRID = "######\n#P_X_#\n#_√#_#\n#_O__#\n######"
COORD = (
    "Board size: 5 rows x 6 cols (zero-indexed).\nTargets: (3, 2)\nBoxes: (1, 3)\nBoxes on target: (2, 2)\n"
    "Player: (1, 1)"
)


def test_grid_and_coordinates_show_the_room_as_ragen_does():
    assert OBSERVATIONS["grid"](state_of(ROOM)) == GRID
    assert OBSERVATIONS["grid"](state_of(ON_GOAL)) == "#####\n#SX_#\n#__√#\n#####"
    assert OBSERVATIONS["coord"](state_of(ROOM)) == COORD
    assert OBSERVATIONS["coord"](state_of(ON_GOAL)) == (
        "Board size: 4 rows x 5 cols (zero-indexed).\nBoxes: (1, 2)\nBoxes on target: (2, 3)\nPlayer on target: (1, 1)"
    )
    text = OBSERVATIONS["coord"](state_of(["######", "#@$$.#", "#.   #", "######"]))
    assert "Targets: (1, 4), (2, 1)\nBoxes: (1, 2), (1, 3)" in text
    assert OBSERVATIONS["grid_coord"](state_of(ROOM)) == f"Coordinates: \n{COORD}\nGrid Map: \n{GRID}"


@pytest.mark.parametrize(
    ("rows", "text"), [(ROOM, "P a1 X c1 b2 O b2 b3 # c2"), (ON_GOAL, "P a1 X b1 c2 O a1 c2"), (BARE, "P a1 X b1 O a1")]
)
def test_the_compact_form_names_squares_within_the_ring_as_in_chess(rows, text):
    assert OBSERVATIONS["compact"](state_of(rows)) == text
    # The outside of a ragged outline reads as wall.
    assert OBSERVATIONS["grid"](state_of(["  ####", "###.@#", "# $  #", "######"])).split("\n")[0] == "######"


RAGGED = "  #####\n###  .#\n#@ $* #\n#######"
CODES = [[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 2, 0], [0, 5, 1, 4, 3, 1, 0], [0, 0, 0, 0, 0, 0, 0]]


def array_room(**settings):
    return gym.make("tsr/Sokoban-v0", **{"obs_type": "array", **settings})


def test_a_move_against_a_wall_counts_and_words_count_in_any_case():
    _, reward, *_, info = started(level=LEVEL).step("Up || Left")
    assert (reward, info["executed"]) == (pytest.approx(-0.2), ("Up", "Left"))
    assert (info["action_is_valid"], info["action_is_effective"], info["actions_left"]) == (True, False, 8)
    for word in ("right", "RIGHT", " rIGHT\t"):
        assert started(level=LEVEL).step(word)[0] == "#######\n#_PX_O#\n#######"
    for word in ("r", "4", "East", "push right", "Right!"):
        env = started(level=LEVEL)
        assert env.step(word)[4]["action_is_valid"] is False
        assert env.unwrapped.state == state_of(LEVEL.split("\n"))


def test_a_step_pays_ends_and_informs_like_the_rules():
    observation, info = array_room(level=RAGGED).reset(seed=1)
    assert (observation.tolist(), observation.dtype) == (CODES, np.uint8)
    mask = info.pop("action_mask")
    assert (mask.tolist(), mask.dtype) == ([0, 0, 0, 1], np.int8)
    assert info == {"action_is_effective": False, "actions_left": 120, "success": False}
    env = array_room(level="######\n#@$. #\n######", reward_step=-1.0, max_actions=3)
    env.reset(seed=1)
    assert env.unwrapped.action_masks().tolist() == [False, False, False, True]
    observation, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (-1.0, False, False)
    assert info.pop("action_mask").tolist() == [0, 0, 0, 1]
    assert info == {"action_is_effective": False, "actions_left": 2, "success": False}
    observation, reward, terminated, truncated, info = env.step(3)
    assert observation.tolist()[1] == [0, 1, 5, 3, 1, 0]
    assert (reward, terminated, truncated, info["success"]) == (10.0, True, False, True)


def test_gym_sokobans_own_arrays_are_ours(golden):
    assert array_room(level="######\n#+$  #\n######").reset()[0].tolist()[1] == [0, 6, 4, 1, 1, 0]
    glyphs = {"#": 0, " ": 1, ".": 2, "*": 3, "$": 4, "@": 5, "+": 6}
    env = array_room(generator="gym-sokoban")
    for row in golden("sokoban/gym_sokoban_6x6_1box_rooms.jsonl")[:30]:
        expected = [[glyphs[letter] for letter in line] for line in row["rows"]]
        assert env.reset(seed=row["seed"])[0].tolist() == expected


def test_levels_are_padded_with_wall_to_the_largest_or_to_a_shape(tmp_path):
    boards = ["######\n#@$. #\n######", "#####\n#@$.#\n#   #\n#####"]
    (tmp_path / "levels.xsb").write_text("\n\n".join(boards))
    for settings, shape in (({}, (4, 6)), ({"shape": (7, 8)}, (7, 8)), ({"num_levels": 1}, (3, 6))):
        env = array_room(levels=str(tmp_path), **settings)
        assert env.observation_space.shape == shape
        for seed in range(6):
            observation, _ = env.reset(seed=seed)
            rows = rows_of(env.unwrapped.state)
            assert (observation == 0).sum() == "".join(rows).count("#") + shape[0] * shape[1] - len(rows) * len(rows[0])
            assert observation[1].tolist()[:4] == [0, 5, 4, 2 if len(rows) else 0]


def test_rooms_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"a shape of at least the largest room's, 6x6, got 5x9"):
        array_room(shape=(5, 9))
    env = array_room(level="#####\n#@$.#\n#####")
    with pytest.raises(ConfigError, match="at most 3x5, got 3x6: set a larger shape"):
        env.reset(options={"level": "######\n#@$. #\n######"})
    with pytest.raises(ConfigError, match="shape is the size of boards where actions are discrete"):
        gym.make("tsr/Sokoban-v0", shape=(9, 9))


def test_a_step_and_a_symmetry_commute():
    # Where each view sends up, down, left and right.
    views = [(turns, mirrored) for turns in range(4) for mirrored in (False, True)]
    steps = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    rng = np.random.default_rng(0)
    env = array_room(dim=(7, 6), num_boxes=2, max_actions=None)
    other = array_room(level=RAGGED, shape=(7, 7), max_actions=None)
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
