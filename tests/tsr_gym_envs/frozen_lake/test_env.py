"""The FrozenLake environment: words, settings, splits, and the real environment's random numbers."""

import gymnasium as gym
import numpy as np
import pytest

from tsr_gym import ConfigError, GenerationFailed, InvalidLevel
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv, FrozenLakeSettings
from tsr_gym_envs.frozen_lake.maps import gymnasium_map, ragen_map
from tsr_gym_envs.frozen_lake.rules import ACTIONS

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
    # With RAGEN's noise the map tells every slip; with ours, the same map meets different ice.
    slips = {}
    for seed in range(300):
        env = lake(size=2, p=1.0)
        env.reset(seed=seed)
        key = (env.unwrapped.state.desc, position(env))
        slips.setdefault(key, set()).add(env.step("Left || Up")[0])
    assert max(len(seen) for seen in slips.values()) > 1


@pytest.mark.parametrize("word", ["Left", "left", " LEFT ", "lEfT"])
def test_words_count_in_any_case(word):
    env = lake(desc=["FSG"], is_slippery=False)
    env.reset(seed=1)
    assert env.step(word)[0] == "P_G"


@pytest.mark.parametrize("word", ["0", "north", "left.", "Le ft", "Left,Right", "左"])
def test_other_words_mean_nothing(word):
    env = lake(desc=["FSG"], is_slippery=False)
    env.reset(seed=1)
    observation, reward, *_, info = env.step(word)
    assert (observation, reward, info["action_is_valid"]) == ("_PG", 0.0, False)


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


def test_maps_come_from_the_named_source():
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


def symmetric_forms(desc):
    board = np.array([list(row) for row in desc])
    return {
        "\n".join("".join(row) for row in np.rot90(view, turns))
        for view in (board, board[:, ::-1])
        for turns in range(4)
    }


def test_splits_share_no_map_even_when_it_is_turned_or_mirrored():
    found = {}
    for split in ("train", "valid", "test"):
        env = lake(split=split, size=3, p=0.7)
        for seed in range(60):
            env.reset(seed=seed)
            for form in symmetric_forms(env.unwrapped.state.desc):
                found.setdefault(form, set()).add(split)
    assert all(len(splits) == 1 for splits in found.values())
    assert {split for splits in found.values() for split in splits} == {"train", "valid", "test"}


def test_all_maps_are_split_in_eight_one_and_one_tenths():
    counts = dict.fromkeys(("train", "valid", "test"), 0)
    envs = {split: lake(split=split).unwrapped for split in counts}
    from tsr_gym_envs.split import in_split

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
    from tsr_gym_envs.frozen_lake.rules import FrozenLakeState

    keys = {
        env.state_key(FrozenLakeState(desc, cell))
        for desc in (("SFG",), ("FSG",), ("SHG",), ("S", "F", "G"))
        for cell in (0, 1)
    }
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
        ({"max_turns": 0}, "wanted max_turns >= 1"),
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


def test_the_presets_are_the_papers_and_its_codes():
    paper, code = lake().unwrapped.settings, lake(preset="tsr-code").unwrapped.settings
    assert (paper.obs_type, paper.p, paper.success_rate, paper.max_actions_per_turn) == ("grid", 0.8, 1 / 3, 5)
    assert (code.obs_type, code.p, code.success_rate, code.max_actions_per_turn) == ("grid_coord", 0.9, 0.8, 2)
    assert (paper.max_turns, paper.max_actions, code.max_turns, code.max_actions) == (5, 10, 5, 10)
    assert lake(preset="tsr-code", p=0.7).unwrapped.settings.p == 0.7


def test_gymnasiums_generator_draws_from_the_environments_numbers():
    env = lake(generator="gymnasium")
    maps = set()
    for seed in range(20):
        env.reset(seed=seed)
        maps.add(env.unwrapped.state.desc)
    assert len(maps) > 5
    assert tuple(gymnasium_map(3)) == tuple(gymnasium_map(3))
