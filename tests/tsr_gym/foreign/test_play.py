"""Play: the first difference between two episodes is named, and copies are proved by it."""

import sys

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign import play
from tsr_gym.foreign.attributes import capture, put_back, twin_of
from tsr_gym.foreign.play import MAX_EXCERPT, Fact, Means, difference, flaw_of, text_of
from tsr_gym.foreign.recorder import fingerprint


@pytest.mark.parametrize(
    ("came", "words"),
    [
        ([Fact("a", 1), Fact("b", 2.0)], None),
        ([Fact("a", 1), Fact("b", 2.5)], "b differs: wanted 2.0, got 2.5"),
        ([Fact("a", 1), Fact("b", 2.5, "two and a half")], "b differs: wanted 2.0, got two and a half"),
        ([Fact("a", True), Fact("b", 2.5)], "a differs: wanted 1, got True"),
        ([Fact("a", 1), Fact("c", 2.0)], "wanted b, got c"),
        ([Fact("a", 1)], "b is missing"),
        ([Fact("a", 1), Fact("b", 2.0), Fact("c", 0)], "c is new"),
    ],
)
def test_the_first_difference_is_reported(came, words):
    assert difference([Fact("a", 1), Fact("b", 2.0)], came) == words


def test_equal_texts_are_told_apart_long_ones_cut_and_large_arrays_shown_by_digest():
    words = difference([Fact("a", np.float32(1), "1.0")], [Fact("a", np.float64(1), "1.0")])
    assert words == "a differs: both read 1.0, but their types, bits or orders differ"
    words = difference([Fact("a", "x" * 5000 + "one")], [Fact("a", "x" * 5000 + "two")])
    assert "xone" in words
    assert "xtwo" in words
    assert len(words) < 3 * MAX_EXCERPT
    left, right = np.zeros(5000), np.zeros(5000)
    right[2500] = 1
    assert text_of(left).startswith("float64 array of shape (5000,) with the digest ")
    assert text_of(left) != text_of(right)


def result(position=1.0, reward=0.0, terminated=False, info=None):
    return play.as_fact((np.array([position]), reward, terminated, False, info or {}))


def differ(left, right):
    return difference(play.facts(left), play.facts(right))


def test_sampled_actions_draw_nothing_from_the_environments_space():
    env = worlds.Plain()
    env.action_space.seed(1)
    wanted = [int(env.action_space.sample()) for _ in range(5)]
    env.action_space.seed(1)
    assert play.actions_of(env, 4) == play.actions_of(env, 4)
    assert play.actions_of(env, 4) != play.actions_of(env, 5)
    assert [int(env.action_space.sample()) for _ in range(5)] == wanted


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
    """An array of another library, which defines `__deepcopy__`."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numbers, dtype=dtype)

    def __deepcopy__(self, memo):
        return Tensor(list(self.numbers))


def test_arrays_of_other_libraries_are_compared_by_their_numbers():
    original, same, other = (
        play.as_fact((Tensor([1.0, last]), Tensor([0]), False, False, {"seen": [Tensor([last])]})) for last in (2, 2, 3)
    )
    assert differ([original], [same]) is None
    assert (
        differ([original], [other]) == "the observation of step 0 differs: wanted array([1., 2.]), got array([1., 3.])"
    )
    assert fingerprint(original) == fingerprint(same) != fingerprint(other)


def test_facts_are_not_changed_by_receivers_and_hold_no_clock():
    observation, info = np.zeros(2), {"seen": []}
    fact = play.as_fact((observation, 0.0, False, False, info))
    observation[0] = 1
    info["seen"].append(1)
    assert differ([fact], [play.as_fact((np.zeros(2), 0.0, False, False, {"seen": []}))]) is None
    info = {"time": 1.5, "reward": 2, "inner": {"elapsed": 3, "steps": 4}}
    assert play.without_clocks(info) == {"reward": 2, "inner": {"steps": 4}}


def test_inner_spaces_have_generators_and_a_play_ends_with_the_episode_or_an_error():
    env = worlds.Plain()
    env.observation_space = gym.spaces.Dict(a=gym.spaces.Tuple([gym.spaces.Discrete(2)]))
    env.observation_space.seed(1)
    before = play.positions_of_spaces(env)
    env.observation_space["a"][0].sample()
    assert repr(play.positions_of_spaces(env)) != repr(before)
    env = worlds.Raises()
    env.reset(seed=6)
    came = play.steps(env, [1] * 40)
    assert isinstance(came[-1], play.Raised)
    assert not any(isinstance(fact, play.Raised) for fact in came[:-1])


def write(env, state):
    put_back(env, state, None)


def twin(env):
    return twin_of(env)


RIGHT = Means(capture, write, twin)


def reset(make=worlds.ManyKinds):
    env = make()
    env.reset(seed=1)
    return env


def test_right_means_have_no_flaw_and_incomplete_or_sharing_ones_do():
    assert flaw_of(reset(), RIGHT) is None
    assert flaw_of(worlds.ManyKinds(), RIGHT) is None

    def sharing(env):
        made = twin(env)
        made.body = env.body
        made.shared = env.body.path
        return made

    def keeping(env, state):
        body, shared = env.body, env.shared
        write(env, state)
        env.body, env.shared = body, shared

    flaw = flaw_of(reset(), Means(capture, keeping, sharing))
    assert "changed the original (the attribute body differs" in flaw
    assert "reset the original" in flaw

    def forgetting(env, state):
        position = env.position
        write(env, state)
        env.position = position

    assert "play different episodes" in flaw_of(reset(), RIGHT._replace(write=forgetting))


def test_hidden_counters_and_generators_that_are_not_put_back_are_found():
    class Quiet(worlds.Plain):
        seen = 0

        def roll(self):
            type(self).seen += 1
            self.hidden = type(self).seen
            return super().roll()

    assert "afterwards, the attribute hidden differs: wanted 6, got 18" in flaw_of(reset(Quiet), RIGHT)

    class Lazy(worlds.Plain):
        def roll(self):
            self.np_random.random()
            return 1

    def drawing(env, state):
        write(env, state)
        drawing.times += 1
        env.np_random.random(drawing.times)

    drawing.times = 0
    assert "the state of its generator afterwards differs" in flaw_of(reset(Lazy), RIGHT._replace(write=drawing))


def test_an_environment_that_takes_no_action_is_not_proved_and_an_ended_episode_from_a_reset():
    class Picky(worlds.Plain):
        def step(self, action):
            raise ValueError("only on Sundays")

    assert "none of the sampled actions could be taken: Raised(kind='ValueError'" in flaw_of(reset(Picky), RIGHT)

    class Ends(worlds.Plain):
        over = False

        def begin(self, seed):
            self.over = False

        def step(self, action):
            if self.over:
                raise RuntimeError("over")
            result = super().step(action)
            self.over = self.position > 15
            return (*result[:2], self.over, *result[3:])

    env = reset(Ends)
    while not env.over:
        env.step(2)
    assert flaw_of(env, RIGHT) is None


def test_what_copies_print_and_warn_of_is_kept_to_themselves(capsys, recwarn):
    class Loud(worlds.Plain):
        def step(self, action):
            sys.stdout.write("loud")
            gym.logger.warn("loud")
            return super().step(action)

    assert flaw_of(reset(Loud), RIGHT) is None
    assert capsys.readouterr().out == ""
    assert not recwarn.list
