"""The FrozenLake environment: words, settings, splits, and the real environment's random numbers.

What an agent reads of a lake: texts written out by hand after RAGEN's and TSR's code.

FrozenLake's arrays and Gymnasium's integer, against Gymnasium's own environment.
"""

import gymnasium as gym
import numpy as np
import pytest

from tsr_gym import ConfigError, GenerationFailed, InvalidLevel
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv, FrozenLakeSettings
from tsr_gym_envs.frozen_lake.lakes import gymnasium_map, ragen_map
from tsr_gym_envs.frozen_lake.rules import ACTIONS, OBSERVATIONS, FrozenLakeState

FREE = {"max_turns": None, "max_actions": None, "max_actions_per_turn": None}


def lake(**settings):
    return gym.make("tsr/FrozenLake-v0", **settings)


def position(env):
    return env.unwrapped.state.position


def test_an_episode_is_the_originals_number_by_number(golden):
    for row in golden("frozen_lake/frozenlake_traj.jsonl"):
        env = lake(desc=row["desc"], **row["cfg"], **FREE)
        env.reset(seed=row["seed"])
        assert position(env) == row["obs0"]
        for action, cell, reward, terminated, truncated, chance in row["steps"]:
            _, came, ended, cut, info = env.step(ACTIONS[action])
            assert (position(env), came, ended, cut, info["prob"]) == (cell, reward, terminated, truncated, chance)


def test_shared_noise_is_ragens_where_map_and_ice_begin_with_the_same_seed():
    for seed in range(30):
        env = lake(noise="shared", **FREE)
        env.reset(seed=seed)
        desc = ragen_map(seed)
        assert list(env.unwrapped.state.desc) == desc
        real = gym.make("FrozenLake-v1", desc=desc)
        assert real.reset(seed=seed)[0] == position(env)
        for number in range(12):
            action = number * 7 % 4
            cell, reward, terminated, *_ = real.step(action)
            _, came, ended, *_ = env.step(ACTIONS[action])
            assert (position(env), came, ended) == (cell, reward, terminated)
            if ended:
                break


def test_separate_noise_does_not_betray_the_ice_by_the_map():
    # With RAGEN's noise the map determines every slip; with ours, the same map occurs with different slips.
    slips = {}
    for seed in range(300):
        env = lake(size=2, p=1.0)
        env.reset(seed=seed)
        key = (env.unwrapped.state.desc, position(env))
        slips.setdefault(key, set()).add(env.step("Left || Up")[0])
    assert max(len(seen) for seen in slips.values()) > 1


@pytest.mark.parametrize(
    ("turn", "reward", "success"), [("Right", 1.0, True), ("Left", -3.0, False), ("Down || Down", -1.0, False)]
)
def test_rewards_follow_the_schedule(turn, reward, success):
    env = lake(desc=["HSG", "FFF", "FFF"], is_slippery=False, reward_schedule=(1.0, -3.0, -0.5))
    env.reset(seed=1)
    _, came, terminated, _, info = env.step(turn)
    assert (came, info["success"]) == (reward, success)
    assert terminated is (turn != "Down || Down")


def test_with_several_starts_each_is_as_likely():
    env = lake(desc=["SFS", "FGF", "SFS"])
    starts = []
    for seed in range(400):
        env.reset(seed=seed)
        starts.append(position(env))
    # Four standard deviations of a quarter of 400 draws.
    assert all(65 <= starts.count(cell) <= 135 for cell in (0, 2, 6, 8))


def symmetric_forms(desc):
    board = np.array([list(row) for row in desc])
    return {
        "\n".join("".join(row) for row in np.rot90(view, turns))
        for view in (board, board[:, ::-1])
        for turns in range(4)
    }


def test_splits_share_no_map_even_when_it_is_turned_or_mirrored():
    splits_of = {}
    for split in ("train", "valid", "test"):
        env = lake(split=split, size=3, p=0.7)
        for seed in range(60):
            env.reset(seed=seed)
            for form in symmetric_forms(env.unwrapped.state.desc):
                splits_of.setdefault(form, set()).add(split)
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert {split for splits in splits_of.values() for split in splits} == {"train", "valid", "test"}


def test_all_maps_are_split_in_eight_one_and_one_tenths():
    counts = dict.fromkeys(("train", "valid", "test"), 0)
    envs = {split: lake(split=split).unwrapped for split in counts}
    from tsr_gym_envs.settings import in_split

    for seed in range(600):
        key = min(symmetric_forms(ragen_map(seed))).encode()
        inside = [split for split in envs if in_split(key, split)]
        assert len(inside) == 1
        counts[inside[0]] += 1
    # Four standard deviations of 600 draws.
    assert 440 <= counts["train"] <= 520
    assert 30 <= counts["valid"] <= 90
    assert 30 <= counts["test"] <= 90


def test_a_key_names_map_and_cell_and_takes_the_start_for_ice():
    env = FrozenLakeEnv(FrozenLakeSettings(desc=("SFG",)))
    descs = ("SFG",), ("FSG",), ("SHG",), ("S", "F", "G")
    keys = {env.state_key(FrozenLakeState(desc, cell)) for desc in descs for cell in (0, 1)}
    assert len(keys) == 6
    assert env.state_key(FrozenLakeState(("SFG",), 1)) == env.state_key(FrozenLakeState(("FSG",), 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "mine"}, r"preset of \['paper', 'tsr-code'\], got 'mine'"),
        ({"colour": "blue", "wind": 3}, r"unknown settings \['colour', 'wind'\]; known: .*obs_type"),
        ({"obs_type": "image"}, "wanted obs_type of .*got 'image'"),
        ({"generator": "maze"}, "wanted generator"),
        ({"noise": "fresh"}, r"wanted noise of \['separate', 'shared'\]"),
        ({"split": "dev"}, "wanted split"),
        ({"map_name": "5x5"}, "wanted map_name"),
        ({"map_name": "4x4", "desc": ["SG"]}, "wanted desc or map_name, got both"),
        ({"size": 1}, "map size between 2 and 64, got 1"),
        ({"p": 0}, "0 < p <= 1, got 0"),
        ({"success_rate": 2}, "between 0 and 1, got 2"),
        ({"reward_schedule": (1, 0)}, "wanted reward_schedule as 3 numbers"),
        ({"max_turns": 0}, "wanted max_turns as a whole number >= 1"),
        ({"render_mode": "video"}, "wanted a render_mode"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(settings, message):
    from tsr_gym_envs.frozen_lake.env import make

    with pytest.raises(ConfigError, match=message):
        make(**settings)


def test_a_malformed_map_is_refused_when_it_is_given():
    with pytest.raises(InvalidLevel, match="row 1, column 2"):
        lake(desc=["SXG"])
    env = lake()
    with pytest.raises(InvalidLevel, match="at least one goal"):
        env.reset(options={"desc": ["SF"]})
    with pytest.raises(ConfigError, match=r"wanted reset options among \['desc', 'number'\], got \['level'\]"):
        env.reset(options={"level": "x"})
    with pytest.raises(ConfigError, match="wanted a map of 4x4, got 1x2"):
        array_lake().reset(options={"desc": ["SG"]})
    for settings in ({"num_levels": 0}, {"num_levels": 3, "desc": ["SG"]}, {"num_levels": 3, "noise": "shared"}):
        with pytest.raises(ConfigError, match="num_levels >= 1 of generated maps whose noise is separate"):
            array_lake(**settings)


def test_a_split_without_maps_is_reported(monkeypatch):
    monkeypatch.setattr("tsr_gym_envs.frozen_lake.lakes.MAX_DRAWS", 5)
    env = FrozenLakeEnv(FrozenLakeSettings(size=2, p=1.0, split="test"))
    failed = 0
    for seed in range(20):
        try:
            env.reset(seed=seed)
        except GenerationFailed as error:
            failed += "no map of split 'test' in 5 draws" in str(error)
    assert failed


def test_presets_and_sources_of_maps_are_those_named():
    paper, code = lake().unwrapped.settings, lake(preset="tsr-code").unwrapped.settings
    assert (paper.obs_type, paper.p, paper.success_rate, paper.max_actions_per_turn) == ("grid", 0.8, 1 / 3, 5)
    assert (code.obs_type, code.p, code.success_rate, code.max_actions_per_turn) == ("grid_coord", 0.9, 0.8, 2)
    assert (paper.max_turns, paper.max_actions, code.max_turns, code.max_actions) == (5, 10, 5, 10)
    assert lake(preset="tsr-code", p=0.7).unwrapped.settings.p == 0.7
    env = lake(map_name="4x4")
    env.reset(seed=1)
    assert env.unwrapped.state.desc == ("SFFF", "FHFH", "FFFH", "HFFG")
    env = lake(generator="gymnasium", size=5)
    env.reset(seed=1)
    desc = env.unwrapped.state.desc
    assert (desc[0][0], desc[-1][-1], len(desc)) == ("S", "G", 5)
    env = lake(desc=["SG"])
    env.reset(seed=1, options={"desc": ["SFFG"]})
    assert env.unwrapped.state.desc == ("SFFG",)
    env.reset()
    assert env.unwrapped.state.desc == ("SG",)


LAKE = ("SFH", "FHF", "FFG")

GRIDS = {0: "P_O\n_O_\n__G", 1: "_PO\n_O_\n__G", 2: "__X\n_O_\n__G", 8: "__O\n_O_\n__√"}
BOARD = "Board size: 3 rows x 3 cols (zero-indexed).\nStart: (0, 0)\nGoal: (2, 2)\n"
PLAYERS = {0: "Player: (0, 0)", 2: "Player in hole: (0, 2)", 8: "Player on goal: (2, 2)"}
COORDS = {cell: f"{BOARD}{player}\nHoles: (0, 2), (1, 1)" for cell, player in PLAYERS.items()}


def test_grid_and_coordinates_read_as_in_ragen_and_differ_by_position():
    for name, texts in (("grid", GRIDS), ("coord", COORDS)):
        assert {cell: OBSERVATIONS[name](FrozenLakeState(LAKE, cell)) for cell in texts} == texts
    assert OBSERVATIONS["coord"](FrozenLakeState(("SG",), 0)) == (
        "Board size: 1 rows x 2 cols (zero-indexed).\nStart: (0, 0)\nGoal: (0, 1)\nPlayer: (0, 0)"
    )
    text = OBSERVATIONS["grid_coord"](FrozenLakeState(LAKE, 0))
    assert text == f"Coordinates: \n{COORDS[0]}\nGrid Map: \n{GRIDS[0]}"
    for observe in OBSERVATIONS.values():
        assert len({observe(FrozenLakeState(LAKE, cell)) for cell in range(9)}) == 9


@pytest.mark.parametrize(
    ("lake", "cell", "text"),
    [
        (LAKE, 0, "P a1 G c3 O c1 b2"),
        (LAKE, 7, "P b3 G c3 O c1 b2"),
        (("SG",), 1, "P b1 G b1"),
        (("GSG",), 1, "P b1 G a1 c1"),
    ],
)
def test_the_compact_form_names_squares_as_in_chess(lake, cell, text):
    assert OBSERVATIONS["compact"](FrozenLakeState(lake, cell)) == text


def array_lake(**settings):
    return gym.make("tsr/FrozenLake-v0", **{"obs_type": "array", **settings})


@pytest.mark.parametrize(
    "settings", [{}, {"is_slippery": False}, {"success_rate": 0.8, "reward_schedule": (10, -5, -1)}], ids=str
)
@pytest.mark.parametrize("name", ["4x4", "8x8"])
def test_the_discrete_form_is_gymnasiums_environment(name, settings):
    ours = array_lake(obs_type="discrete", map_name=name, max_actions=100 if name == "4x4" else 200, **settings)
    real = gym.make("FrozenLake-v1", map_name=name, **settings)
    assert (ours.observation_space, ours.action_space) == (real.observation_space, real.action_space)
    rng = np.random.default_rng(3)
    for seed in range(20):
        assert ours.reset(seed=seed)[0] == real.reset(seed=seed)[0]
        over = False
        while not over:
            action = int(rng.integers(4))
            *came, info = ours.step(action)
            *expected, real_info = real.step(action)
            assert (came, info["prob"]) == (expected, real_info["prob"])
            over = came[2] or came[3]


def test_codes_show_cells_and_player():
    env = array_lake(desc=["SFHG"], is_slippery=False)
    assert env.reset(seed=1)[0].tolist() == [[3, 0, 1, 2]]
    assert env.step(2)[0].tolist() == [[0, 3, 1, 2]]
    observation, _, terminated, _, info = env.step(2)
    assert (observation.tolist(), terminated, info["success"]) == ([[0, 0, 4, 2]], True, False)
    env = array_lake(desc=["SG"], is_slippery=False)
    env.reset(seed=1)
    observation, reward, terminated, _, info = env.step(2)
    assert (observation.tolist(), reward, terminated, info["success"]) == ([[0, 5]], 1.0, True, True)


@pytest.mark.parametrize(("generator", "draw"), [("ragen", ragen_map), ("gymnasium", gymnasium_map)])
def test_a_number_of_maps_is_the_generators_first(generator, draw):
    for settings in ({}, {"obs_type": "grid", "action_type": "text"}):
        env = array_lake(generator=generator, num_levels=4, **settings)
        maps = [tuple(draw(number)) for number in range(4)]

        def start(env=env, **arguments):
            env.reset(**arguments)
            return env.unwrapped.state.desc

        assert [start(options={"number": number}) for number in range(4)] == maps
        assert {start(seed=seed) for seed in range(50)} == set(maps)
        with pytest.raises(ConfigError, match="below 4, got 4"):
            env.reset(options={"number": 4})


def test_words_count_in_any_case_and_other_words_mean_nothing():
    words = dict.fromkeys(["Left", "left", " LEFT ", "lEfT"], ("P_G", True))
    words |= dict.fromkeys(["0", "north", "left.", "Le ft", "Left,Right", "左"], ("_PG", False))
    for word, wanted in words.items():
        env = lake(desc=["FSG"], is_slippery=False)
        env.reset(seed=1)
        observation, reward, *_, info = env.step(word)
        assert (observation, info["action_is_valid"], reward) == (*wanted, 0.0)


def test_masks_leave_out_actions_that_cannot_move_the_player():
    masks = {}
    for slippery in (False, True):
        env = gym.make("tsr/FrozenLake-v0", desc=["SF", "FG"], is_slippery=slippery, obs_type="discrete").unwrapped
        env.reset(seed=1)
        masks[slippery] = env.action_masks().tolist()
        env.step(2), env.step(1)
        if not slippery:
            assert env.action_masks().all()
    # Left, Down, Right, Up: on ice, left slips up or down, and up slips left or right.
    assert masks == {False: [False, True, True, False], True: [True] * 4}
