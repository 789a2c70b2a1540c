"""FreeText: any Unicode text, and errors where Gymnasium would silently be wrong."""

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


class Reader(gym.Env):
    """Its observations are difficult texts, one after the other."""

    observation_space = FreeText(400_000)
    action_space = gym.spaces.Discrete(2)
    TEXTS = ("", "grün 漢 🙂", "\ud800 half", "line\nline\x00", "a" * 400_000, "short again", "漢" * 400_000)

    def reset(self, *, seed=None, options=None):
        self.number = 0
        return self.TEXTS[0], {}

    def step(self, action):
        self.number += 1
        return self.TEXTS[self.number], 0.0, False, False, {}


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_texts_in_shared_memory_are_those_that_were_shown_and_stay_as_they_were(context):
    envs = AsyncVectorEnv([Reader, Reader], context=context)
    try:
        seen = [envs.reset()[0]] + [envs.step([0, 0])[0] for _ in Reader.TEXTS[1:6]]
        assert seen == [(text, text) for text in Reader.TEXTS[:6]]
        with pytest.raises(ValueError, match=r"at most 1048576 bytes .*vector_kwargs=\{'shared_memory': False\}"):
            envs.step([0, 0])
    finally:
        envs.close(terminate=True)


def test_texts_in_shared_memory_can_be_looked_at_without_a_copy():
    envs = AsyncVectorEnv([make, make], copy=False)
    try:
        live, _ = envs.reset(seed=3)
        before = tuple(live)
        assert (live[1], live[-1], live[:1], len(live)) == (before[1], before[1], before[:1], 2)
        envs.step(("Down", "Down"))
        assert tuple(live) != before
    finally:
        envs.close()


def play(envs):
    observations = [envs.reset(seed=3)[0]]
    for turn in (("Left", "Down || Right"), ("Up || Up", "junk"), ("Right", "Down")):
        observation, reward, terminated, truncated, info = envs.step(turn)
        observations.append(
            (observation, reward.tolist(), terminated.tolist(), truncated.tolist(), info["success"].tolist())
        )
    return observations


@pytest.mark.parametrize("shared_memory", [True, False])
def test_vector_environments_show_what_the_single_ones_show(shared_memory):
    sync, parallel = SyncVectorEnv([make, make]), AsyncVectorEnv([make, make], shared_memory=shared_memory)
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


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_makes_vector_environments_of_ours(mode):
    envs = gym.make_vec(GAME, num_envs=3, vectorization_mode=mode)
    observations, _ = envs.reset(seed=1)
    assert len(set(observations)) > 1
    assert isinstance(envs.observation_space, gym.spaces.Tuple)
    envs.close()
