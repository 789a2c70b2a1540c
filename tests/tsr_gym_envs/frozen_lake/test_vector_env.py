"""The batch kernel against transition tables and numpy's random numbers."""

import numpy as np
import pytest

from tests.conftest import deep
from tsr_gym_envs.frozen_lake.lakes import ragen_map
from tsr_gym_envs.frozen_lake.rules import transition_table
from tsr_gym_envs.frozen_lake.settings import make_settings
from tsr_gym_envs.frozen_lake.vector_env import FrozenLakeVectorEnv

SETTINGS = [
    {}, {"is_slippery": False}, {"success_rate": 0.8, "reward_schedule": (10, -5, -1)}, {"success_rate": 0.0},
    {"size": 7, "p": 0.9, "success_rate": 1.0},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(("num_envs", "num_steps"), [(10, 150), deep(100, 4000)])
def test_random_play_with_next_step_autoresets_is_that_of_a_table_and_a_generator(num_envs, num_steps, settings):
    config = make_settings("paper", {"obs_type": "discrete", "num_levels": 20, "max_actions": 40, **settings})
    env = FrozenLakeVectorEnv(num_envs, config)
    maps = [tuple(ragen_map(seed, config.size, config.p)) for seed in range(20)]
    ice = {"is_slippery": config.is_slippery, "success_rate": config.success_rate}
    tables = [transition_table(desc, **ice, reward_schedule=config.reward_schedule) for desc in maps]
    rngs = [np.random.default_rng(seed) for seed in range(num_envs)]
    places = [None] * num_envs
    observations, _ = env.reset(seed=0)

    def start(number):
        which = int(rngs[number].integers(20))
        starts = [cell for cell, letter in enumerate("".join(maps[which])) if letter == "S"]
        places[number] = (which, starts[int(rngs[number].random() * len(starts))], 0)

    def expect(number, action):
        which, cell, taken = places[number]
        if taken == 40 or "".join(maps[which])[cell] in "GH":
            start(number)
            return places[number][1], 0.0, False, False
        outcomes = tables[which][cell][action]
        drawn = np.cumsum([outcome[0] for outcome in outcomes]) > (rngs[number].random() if config.is_slippery else 0)
        _, cell, reward, ended = outcomes[np.argmax(drawn)]
        places[number] = (which, cell, taken + 1)
        return cell, reward, ended, taken == 39 and not ended

    for number in range(num_envs):
        start(number)
        assert observations[number] == places[number][1]
    rng = np.random.default_rng(1)
    for _ in range(num_steps):
        actions = rng.integers(4, size=num_envs)
        results = [column.tolist() for column in env.step(actions)[:4]]
        assert list(zip(*results, strict=True)) == [expect(number, action) for number, action in enumerate(actions)]
