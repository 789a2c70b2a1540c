"""FreeText: any Unicode text, and loud refusal where Gymnasium would go wrong in silence."""

import copy
import pickle

import gymnasium as gym
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.utils import create_zero_array
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import FreeText

GAME = "tsr/FrozenLake-v0"


def make():
    return gym.make(GAME)


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_every_short_enough_text_is_inside(text):
    assert (text in FreeText(20)) == (len(text) <= 20)


@pytest.mark.parametrize("other", [None, 3, b"text", ["text"], ("t",)])
def test_nothing_but_text_is_inside(other):
    assert other not in FreeText(20)


@pytest.mark.parametrize("space", [FreeText(9), FreeText(30, words=("Up", "Left"), max_words=4)], ids=str)
def test_samples_lie_inside_and_depend_on_the_seed(space):
    space.seed(5)
    first = [space.sample() for _ in range(200)]
    space.seed(5)
    assert [space.sample() for _ in range(200)] == first
    assert all(sample in space for sample in first)
    assert len(set(first)) > 10


def test_samples_of_words_join_them():
    space = FreeText(100, words=("Up", "Down"), separator=" + ", max_words=2, seed=1)
    assert {space.sample() for _ in range(100)} == {
        "Up",
        "Down",
        "Up + Up",
        "Up + Down",
        "Down + Up",
        "Down + Down",
    }


def test_masks_are_refused():
    for arguments in ({"mask": 1}, {"probability": 1}):
        with pytest.raises(ValueError, match="no masks or probabilities"):
            FreeText(5).sample(**arguments)


@pytest.mark.parametrize("arguments", [{"max_length": 0}, {"max_length": 5, "max_words": 0}], ids=str)
def test_impossible_settings_are_refused(arguments):
    with pytest.raises(ValueError, match="wanted max_length and max_words >= 1"):
        FreeText(**arguments)


def test_spaces_compare_by_what_they_hold():
    assert FreeText(5) == FreeText(5, seed=3)
    assert FreeText(5) != FreeText(6)
    assert FreeText(5) != FreeText(5, words=("a",))
    assert FreeText(5) != gym.spaces.Text(5)
    assert copy.deepcopy(FreeText(5)) == pickle.loads(pickle.dumps(FreeText(5)))


def test_frame_stacks_pad_with_empty_text():
    assert create_zero_array(FreeText(5)) == ""


def test_shared_memory_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([make, make])


def play(envs):
    observations = [envs.reset(seed=3)[0]]
    for turn in (("Left", "Down || Right"), ("Up || Up", "junk"), ("Right", "Down")):
        observation, reward, terminated, truncated, info = envs.step(turn)
        observations.append(
            (observation, reward.tolist(), terminated.tolist(), truncated.tolist(), info["success"].tolist())
        )
    return observations


def test_vector_environments_show_what_the_single_ones_show():
    sync, parallel = SyncVectorEnv([make, make]), AsyncVectorEnv([make, make], shared_memory=False)
    try:
        assert play(sync) == play(parallel)
        singles = [make(), make()]
        wanted = tuple(env.reset(seed=3 + number)[0] for number, env in enumerate(singles))
        assert sync.reset(seed=3)[0] == wanted
        assert parallel.reset(seed=3)[0] == wanted
        wanted = tuple(env.step("Down")[0] for env in singles)
        assert sync.step(("Down", "Down"))[0] == wanted
        assert parallel.step(("Down", "Down"))[0] == wanted
    finally:
        sync.close()
        parallel.close()


def test_gymnasium_makes_vector_environments_of_ours():
    envs = gym.make_vec(GAME, num_envs=3, vectorization_mode="sync")
    observations, _ = envs.reset(seed=1)
    assert len(set(observations)) > 1
    assert isinstance(envs.observation_space, gym.spaces.Tuple)
    envs.close()
