"""Which objects are nothing but their attributes."""

import threading

import gymnasium as gym
import numpy as np

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign.objects import attributes_of, frees, is_plain, set_attributes


class Own:
    pass


class Slotted:
    __slots__ = ("a", "b")


class Derived(Slotted):
    pass


class Array(np.ndarray):
    pass


class ListOfOwn(list):
    pass


def test_classes_written_in_python_are_plain_and_those_of_extensions_are_not():
    plain = [Own, Slotted, Derived, worlds.Body, worlds.RemembersItsArguments, type(gym.make("CartPole-v1").unwrapped)]
    assert all(map(is_plain, plain))
    assert not any(
        map(is_plain, [Array, ListOfOwn, np.random.Generator, threading.local, dict, type(threading.Lock())])
    )


def test_a_class_that_says_how_it_is_copied_is_not_plain():
    for name in ("__reduce__", "__deepcopy__", "__setstate__", "__getnewargs__"):
        assert not is_plain(type("Says", (Own,), {name: lambda self, *rest: None}))


def test_attributes_are_found_in_dictionaries_and_slots_and_set_in_both():
    one = Derived()
    one.a, one.c = 1, 3
    assert attributes_of(one) == {"a": 1, "c": 3}
    other = Derived()
    set_attributes(other, {"a": 5, "b": 6, "c": 7})
    assert attributes_of(other) == {"a": 5, "b": 6, "c": 7}


def test_what_frees_something_is_known_by_its_class():
    assert frees(worlds.Frees)
    assert frees(worlds.Resource)
    assert not frees(Own)
    assert not frees(type(number for number in ()))
