"""Plays and how they are compared."""

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign import play
from tsr_gym.foreign.play import difference
from tsr_gym.foreign.recorder import fingerprint


def result(position=1.0, reward=0.0, terminated=False, info=None):
    return play.as_fact((np.array([position]), reward, terminated, False, info or {}))


def differ(one, other):
    return difference(play.facts(one), play.facts(other))


def test_sampled_actions_draw_nothing_from_the_environments_space():
    env = worlds.Plain()
    env.action_space.seed(1)
    wanted = [int(env.action_space.sample()) for _ in range(5)]
    env.action_space.seed(1)
    assert play.actions_of(env, 4) == play.actions_of(env, 4)
    assert play.actions_of(env, 4) != play.actions_of(env, 5)
    assert [int(env.action_space.sample()) for _ in range(5)] == wanted


def test_readings_of_the_clock_are_left_out_wherever_they_stand():
    info = {"time": 1.5, "reward": 2, "inner": {"elapsed": 3, "steps": 4}}
    assert play.without_clocks(info) == {"reward": 2, "inner": {"steps": 4}}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ([result(), result(2.0)], None),
        ([result(), result(2.5)], "the observation of step 1 differs: wanted array([2.]), got array([2.5])"),
        ([result(), result(2.0, 1.0, True)], "the reward of step 1 differs: wanted 0.0, got 1.0"),
        ([result(info={"a": 1}), result(2.0)], "the info of step 0 differs: wanted {}, got {'a': 1}"),
        (
            [result(), play.raised(ValueError("no"))],
            "wanted the observation of step 1, got step 1 raising ValueError: no",
        ),
        ([result()], "the observation of step 1 is missing"),
    ],
)
def test_a_difference_names_the_step_and_the_part(other, words):
    assert differ([result(), result(2.0)], other) == words


class Tensor:
    """An array of another library, which copies itself in its own way."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numbers, dtype=dtype)

    def __deepcopy__(self, memo):
        return Tensor(list(self.numbers))


def test_arrays_of_other_libraries_are_compared_by_their_numbers():
    one, same, other = (
        play.as_fact((Tensor([1.0, last]), Tensor([0]), False, False, {"seen": [Tensor([last])]})) for last in (2, 2, 3)
    )
    assert differ([one], [same]) is None
    assert differ([one], [other]) == "the observation of step 0 differs: wanted array([1., 2.]), got array([1., 3.])"
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_facts_are_not_changed_by_who_got_the_result():
    observation, info = np.zeros(2), {"seen": []}
    fact = play.as_fact((observation, 0.0, False, False, info))
    observation[0] = 1
    info["seen"].append(1)
    assert differ([fact], [play.as_fact((np.zeros(2), 0.0, False, False, {"seen": []}))]) is None


def test_spaces_inside_spaces_have_generators_too():
    env = worlds.Plain()
    env.observation_space = gym.spaces.Dict(a=gym.spaces.Tuple([gym.spaces.Discrete(2)]))
    env.observation_space.seed(1)
    before = play.positions_of_spaces(env)
    env.observation_space["a"][0].sample()
    assert repr(play.positions_of_spaces(env)) != repr(before)


def test_a_play_ends_with_the_episode_or_an_error():
    env = worlds.Raises()
    env.reset(seed=6)
    came = play.steps(env, [1] * 40)
    assert isinstance(came[-1], play.Raised)
    assert not any(isinstance(fact, play.Raised) for fact in came[:-1])
