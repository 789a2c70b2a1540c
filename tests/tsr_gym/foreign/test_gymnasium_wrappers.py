"""Wrappers: functions that a copied wrapper holds act on the copy."""

import copy

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AddRenderObservation, TransformObservation

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import play
from tsr_gym import clone, replayable
from tsr_gym.foreign.gymnasium_wrappers import rebind


class Holds(gym.Wrapper):
    """Keeps functions that refer to layers in every possible way."""

    def __init__(self, env):
        super().__init__(env)
        base = env.unwrapped
        seen = 0

        def count(times):
            nonlocal seen
            seen += 1
            return (self, base.position, seen) if times == 0 else count(times - 1)

        def nobody(number):
            return number + later

        self.bound = self.place
        self.deeper = env.observe
        self.recursive = count
        self.again = lambda: count(0)[2]
        self.indirect = lambda: [count(0)[0], base.position]
        self.nobody = nobody
        later = 1

    def place(self):
        return self.env.position


def pair():
    env = worlds.Plain()
    env.position = 3
    wrapper, other = Holds(env), worlds.Plain()
    other.position = 50
    twin = copy.copy(wrapper)
    twin.env = other
    rebind(twin, wrapper)
    return wrapper, twin


def test_methods_and_closures_look_at_the_copied_stack_and_the_originals_at_theirs():
    wrapper, twin = pair()
    assert (twin.bound(), wrapper.bound()) == (50, 3)
    assert (twin.deeper()[0], wrapper.deeper()[0]) == (50.0, 3.0)
    assert twin.recursive(2)[:2] == (twin, 50)
    assert wrapper.recursive(2)[:2] == (wrapper, 3)
    assert twin.indirect() == [twin, 50]
    assert wrapper.indirect() == [wrapper, 3]


def test_functions_share_variables_with_each_other_only():
    wrapper, twin = pair()
    assert [twin.recursive(0)[2], twin.again(), twin.recursive(1)[2]] == [1, 2, 4]
    assert wrapper.again() == 1


def test_what_a_class_leaves_out_of_its_copies_is_there_nevertheless():
    class Forgetful(Holds):
        def __getstate__(self):
            return {"env": self.env}

    wrapper = Forgetful(worlds.Plain())
    twin = copy.copy(wrapper)
    assert "bound" not in vars(twin)
    twin.env = worlds.Plain()
    rebind(twin, wrapper)
    assert vars(twin).keys() == vars(wrapper).keys()
    assert twin.action_space is twin.env.action_space
    assert twin.bound.__self__ is twin


def test_a_function_that_holds_no_layer_is_left_alone():
    wrapper, twin = pair()
    assert twin.nobody is wrapper.nobody
    assert twin.nobody(1) == 2


def test_a_clone_shows_its_own_pictures():
    env = AddRenderObservation(gym.make("CartPole-v1", render_mode="rgb_array"))
    env.reset(seed=1)
    twin = clone(env)
    shown, unmoved = twin.step(1)[0], env.render()
    assert not np.array_equal(shown, unmoved)
    assert np.array_equal(shown, twin.render())
    assert np.array_equal(shown, env.step(1)[0])


def test_a_clones_functions_draw_from_its_own_generator():
    def noisy(env):
        return TransformObservation(env, lambda one: one + env.np_random.random(), None)

    for make in (worlds.Plain, lambda: replayable(worlds.LockedWithArguments())):
        env = noisy(make())
        env.reset(seed=2)
        twin = clone(env)
        assert play(twin, [1, 2, 0]) == play(env, [1, 2, 0])
