"""FrozenLake's arrays and Gymnasium's integer, against Gymnasium's own environment."""

import gymnasium as gym
import numpy as np
import pytest

from tsr_gym import ConfigError
from tsr_gym_envs.frozen_lake.maps import gymnasium_map, ragen_map


def lake(**settings):
    return gym.make("tsr/FrozenLake-v0", **{"obs_type": "array", **settings})


@pytest.mark.parametrize(
    "settings", [{}, {"is_slippery": False}, {"success_rate": 0.8, "reward_schedule": (10, -5, -1)}], ids=str
)
@pytest.mark.parametrize("name", ["4x4", "8x8"])
def test_the_discrete_form_is_gymnasiums_environment(name, settings):
    ours = lake(obs_type="discrete", map_name=name, max_actions=100 if name == "4x4" else 200, **settings)
    real = gym.make("FrozenLake-v1", map_name=name, **settings)
    assert (ours.observation_space, ours.action_space) == (real.observation_space, real.action_space)
    rng = np.random.default_rng(3)
    for seed in range(20):
        assert ours.reset(seed=seed)[0] == real.reset(seed=seed)[0]
        over = False
        while not over:
            action = int(rng.integers(4))
            *came, info = ours.step(action)
            *wanted, real_info = real.step(action)
            assert came == wanted
            assert info["prob"] == real_info["prob"]
            over = came[2] or came[3]


def test_codes_say_what_lies_and_who_stands_where():
    env = lake(desc=["SFHG"], is_slippery=False)
    assert env.reset(seed=1)[0].tolist() == [[3, 0, 1, 2]]
    assert env.step(2)[0].tolist() == [[0, 3, 1, 2]]
    observation, _, terminated, _, info = env.step(2)
    assert (observation.tolist(), terminated, info["success"]) == ([[0, 0, 4, 2]], True, False)
    env = lake(desc=["SG"], is_slippery=False)
    env.reset(seed=1)
    observation, reward, terminated, _, info = env.step(2)
    assert (observation.tolist(), reward, terminated, info["success"]) == ([[0, 5]], 1.0, True, True)


@pytest.mark.parametrize(("generator", "draw"), [("ragen", ragen_map), ("gymnasium", gymnasium_map)])
def test_a_number_of_maps_is_the_generators_first(generator, draw):
    for settings in ({}, {"obs_type": "grid", "action_type": "text"}):
        env = lake(generator=generator, num_levels=4, **settings)
        maps = [tuple(draw(number)) for number in range(4)]

        def start(env=env, **arguments):
            env.reset(**arguments)
            return env.unwrapped.state.desc

        assert [start(options={"number": number}) for number in range(4)] == maps
        assert {start(seed=seed) for seed in range(50)} == set(maps)
        with pytest.raises(ConfigError, match="below 4, got 4"):
            env.reset(options={"number": 4})


def test_maps_of_another_size_are_refused():
    with pytest.raises(ConfigError, match="wanted a map of 4x4, got 1x2"):
        lake().reset(options={"desc": ["SG"]})


@pytest.mark.parametrize("settings", [{"num_levels": 0}, {"num_levels": 3, "desc": ["SG"]}, {"noise": "shared"}])
def test_a_number_of_maps_is_of_generated_ones_with_their_own_noise(settings):
    with pytest.raises(ConfigError, match="num_levels >= 1 of generated maps whose noise is separate"):
        lake(**{"num_levels": 3, **settings})
