"""The proof by play, given means that are wrong in one way each."""

import sys

import gymnasium as gym
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign.attributes import capture, put_back, twin_of
from tsr_gym.foreign.play import Means, difference, flaw_of, held


def write(env, state):
    put_back(env, state, None)


def twin(env):
    return twin_of(env)


RIGHT = Means(capture, write, twin)


def reset(make=worlds.ManyKinds):
    env = make()
    env.reset(seed=1)
    return env


def test_right_means_have_no_flaw():
    assert flaw_of(reset(), RIGHT) is None
    assert flaw_of(worlds.ManyKinds(), RIGHT) is None


def test_copies_that_share_an_object_with_the_original_are_found():
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
    assert "should be reset" in flaw


def test_a_copy_that_is_not_put_back_wholly_is_found():
    def forgetting(env, state):
        position = env.position
        write(env, state)
        env.position = position

    assert "do not play alike" in flaw_of(reset(), RIGHT._replace(write=forgetting))


def test_copies_that_stand_elsewhere_afterwards_are_found_though_they_show_the_same():
    class Quiet(worlds.Plain):
        seen = 0

        def roll(self):
            type(self).seen += 1
            self.hidden = type(self).seen
            return super().roll()

    assert "afterwards, the attribute hidden differs: wanted 6, got 18" in flaw_of(reset(Quiet), RIGHT)


def test_a_generator_that_is_not_put_back_is_found():
    class Lazy(worlds.Plain):
        def roll(self):
            self.np_random.random()
            return 1

    def drawing(env, state):
        write(env, state)
        drawing.times += 1
        env.np_random.random(drawing.times)

    drawing.times = 0
    assert "where its generator stands afterwards differs" in flaw_of(reset(Lazy), RIGHT._replace(write=drawing))


def test_an_environment_that_takes_none_of_the_sampled_actions_is_not_proved():
    class Picky(worlds.Plain):
        def step(self, action):
            raise ValueError("only on Sundays")

    assert "none of the sampled actions could be taken: Raised(kind='ValueError'" in flaw_of(reset(Picky), RIGHT)


def test_an_episode_that_has_ended_is_proved_from_a_reset():
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


def test_captures_that_differ_are_told_apart_by_attribute():
    env = reset(worlds.Plain)
    one = capture(env)
    env.position += 1
    env.later = None
    later = capture(env)
    assert difference(held(one), held(later)) == "wanted the attribute position, got the attribute later"
    assert difference(held(later), held(later)) is None


@pytest.mark.parametrize("make", [worlds.Frees, worlds.HoldsWhatFrees])
def test_what_frees_something_is_not_even_copied(make):
    env = reset(make)
    freed = worlds.Frees.freed, worlds.Resource.freed
    assert "frees something" in flaw_of(env, RIGHT)
    assert (worlds.Frees.freed, worlds.Resource.freed) == freed
