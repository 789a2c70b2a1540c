"""Registration: ids exist after `import tsr_gym`, cheaply, and short names lead to them."""

import gymnasium as gym
import pytest

from tests.tsr_gym.own_process import run_python
from tsr_gym.optional import load
from tsr_gym.registration import ENTRY_POINTS, SHORT_NAMES, VECTOR_ENTRY_POINTS, env_id, register_envs


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_id_can_be_made_in_a_process_that_only_named_the_package(name):
    code = f"import gymnasium; env = gymnasium.make('tsr_gym:{name}'); print(env.reset()[0] in env.observation_space)"
    assert run_python(code).strip() == "True"


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_id_has_an_entry_point_and_no_time_limit(name):
    spec = gym.spec(name)
    assert callable(load(ENTRY_POINTS[name]))
    assert spec.entry_point == ENTRY_POINTS[name]
    # Turn limits live in the environment's state, so a TimeLimit would count a second time.
    assert spec.max_episode_steps is None


@pytest.mark.parametrize("name", VECTOR_ENTRY_POINTS)
def test_a_vector_entry_point_makes_batches(name):
    assert gym.spec(name).vector_entry_point == VECTOR_ENTRY_POINTS[name]
    assert gym.make_vec(name, num_envs=2).reset(seed=1)[0].shape[0] == 2


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_vector_environments_of_gymnasium_show_the_text_of_the_single_ones(name, mode):
    envs = gym.make_vec(name, num_envs=2, vectorization_mode=mode)
    try:
        assert envs.reset(seed=4)[0] == tuple(gym.make(name).reset(seed=seed)[0] for seed in (4, 5))
    finally:
        envs.close()


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_saved_spec_makes_the_same_environment_in_another_process(name):
    env = gym.make(name, max_turns=3)
    code = (
        "import gymnasium as gym; from gymnasium.envs.registration import EnvSpec; "
        f"env = gym.make(EnvSpec.from_json({env.spec.to_json()!r})); "
        "print(repr(env.reset(seed=7)[0]), env.unwrapped.limits.max_turns)"
    )
    assert run_python(code).strip() == f"{env.reset(seed=7)[0]!r} {env.unwrapped.limits.max_turns}"


def test_registering_twice_is_harmless(recwarn):
    before = dict(gym.registry)
    register_envs()
    assert gym.registry == before
    assert not recwarn.list


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_short_names_lead_to_registered_ids(short):
    assert env_id(short.upper()) in gym.registry


def test_other_names_stay_as_they_are():
    assert env_id("CartPole-v1") == "CartPole-v1"
    assert env_id("tsr/Sokoban-v0") == "tsr/Sokoban-v0"
