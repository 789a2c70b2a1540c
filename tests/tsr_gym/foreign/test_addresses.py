"""Sets that are ordered by the addresses of their elements are refused by name; all other sets are not."""

import logging
import threading
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from weakref import WeakSet

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym.foreign.worlds import Mode, Plain, Slotted, play
from tsr_gym import CheckFailed, SnapshotError, env_support, replayable, restore, snapshot
from tsr_gym.foreign.addresses import unordered_in
from tsr_gym.foreign.freezing import Freezer, Uncopyable
from tsr_gym.testing import check_snapshot


class Beast:
    """Hashes by identity."""

    def roar(self):
        return 1


class Numbered:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return self.number == other.number


class Addressed(Beast):
    def __hash__(self):
        return id(self) // 16


@dataclass(frozen=True)
class Pair:
    left: object
    right: object


class Herd(set):
    pass


def unnamed():
    return lambda: None


def twice(make):
    return {make(), make()}


def waits():
    herd = twice(Beast)
    yield herd


def waiting():
    generator = waits()
    next(generator)
    return generator


class CopiesItself:
    def __init__(self):
        self.herd = twice(Beast)

    def __deepcopy__(self, memo):
        made = CopiesItself.__new__(CopiesItself)
        made.herd = {Beast() for _ in self.herd}
        return made


WEAK = [Beast(), Beast()]
UNORDERED = {
    "objects": twice(Beast),
    "frozen": frozenset(twice(Beast)),
    "own class of sets": Herd(twice(Beast)),
    "slots": twice(Slotted),
    "in tuples": {(1, Beast()), (2, 3)},
    "in frozen sets": {frozenset({Beast()}), 1},
    "in dataclasses": twice(lambda: Pair(1, Beast())),
    "own hash of the address": twice(Addressed),
    "methods": {Beast().roar, Beast().roar},
    "inner functions": twice(unnamed),
    "values of a dictionary": defaultdict(set, {(0, 0): twice(Beast)}),
    "in a list": [1, deque([twice(Beast)])],
    "in an attribute": SimpleNamespace(chunks={"a": twice(Beast)}),
    "in an array": np.array([twice(Beast), None], dtype=object),
    "copies itself": CopiesItself(),
}
ONLY_REPLAYED = {
    "in a closure": (lambda herd: lambda: herd)(twice(Beast)),
    "in a partial": partial(print, twice(Beast)),
    "in a generator": waiting(),
    "weak": WeakSet(WEAK),
}
ORDERED = {
    "no set": [Beast(), Beast()], "a single element": {Beast()},
    "numbers and text": {1, "a", (2, None), 0.5, Mode.CALM, np.int64(3)}, "hash by value": {Numbered(1), Numbered(2)},
    "dataclasses of numbers": {Pair(1, 2), Pair(2, "b")}, "keys of a dictionary": {Beast(): 1, Beast(): 2},
    "classes and functions": {Beast, Mode, unnamed, len, threading},
}  # fmt: skip


def held(value):
    return SimpleNamespace(unwrapped=None, place=value)


@pytest.mark.parametrize("name", [*UNORDERED, *ONLY_REPLAYED])
def test_a_set_that_is_ordered_by_addresses_is_named(name):
    refused = unordered_in(held({**UNORDERED, **ONLY_REPLAYED}[name]))
    assert refused.startswith("the attribute place")
    assert "no restore repeats" in refused
    if name in UNORDERED:
        with pytest.raises(Uncopyable, match="no restore repeats"):
            Freezer().frozen(UNORDERED[name])


@pytest.mark.parametrize("name", ORDERED)
def test_other_sets_and_all_dictionaries_are_accepted(name):
    assert unordered_in(held(ORDERED[name])) is None
    Freezer().frozen(ORDERED[name])


def test_threads_and_logs_are_not_part_of_an_episode():
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: threading.Event().wait(0.05), range(2)))
        assert len(pool._threads) == 2
        assert unordered_in(held((pool, logging.getLogger()))) is None


def test_the_path_names_attributes_keys_and_indices():
    world = SimpleNamespace(chunks={(0, 1): [None, twice(Beast)]})
    assert unordered_in(held(world)).startswith("the attribute place.chunks[(0, 1)][1] of SimpleNamespace: a set of 2")


class Crowd(Plain):
    """From its 18th turn on, a set of two beasts decides the rewards by its order."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.turns, self.crowd = 0, set()

    def begin(self, seed):
        self.turns, self.crowd = 0, set()

    def roll(self):
        self.turns += 1
        if self.turns >= 18:
            beast = Beast()
            beast.number = self.turns
            self.crowd.add(beast)
        return sum(place * beast.number for place, beast in enumerate(self.crowd))


class LockedCrowd(Crowd):
    """The same, and it cannot be copied."""

    def begin(self, seed):
        super().begin(seed)
        self.lock = threading.Lock()


class EarlyCrowd(LockedCrowd):
    """The same from its first turn on."""

    def begin(self, seed):
        super().begin(seed)
        self.crowd = twice(Beast)
        for number, beast in enumerate(self.crowd):
            beast.number = number


@pytest.mark.parametrize(("make", "level"), [(Crowd, "deepcopy"), (LockedCrowd, "replay")])
def test_the_first_snapshot_that_sees_such_a_set_is_refused(make, level):
    env = make()
    env.reset(seed=1)
    assert env_support(env).level == level
    env = replayable(env) if level == "replay" else env
    env.reset(seed=1)
    play(env, [0] * 17)
    before = snapshot(env)
    play(env, [0] * 2)
    with pytest.raises(SnapshotError, match=f"the attribute crowd of {make.__name__}: a set of 2 .* its Beast objects"):
        snapshot(env)
    restore(env, before)
    assert snapshot(env) == before


def test_support_and_check_name_the_attribute():
    for num_resets in range(2):
        env = EarlyCrowd()
        for _ in range(num_resets):
            env.reset(seed=1)
        support = env_support(env)
        assert support.level == "none"
        assert "the attribute crowd of EarlyCrowd: a set of 2" in support.reason
    with pytest.raises(CheckFailed, match=r"\[unsupported\] .*the attribute crowd of EarlyCrowd"):
        check_snapshot(EarlyCrowd(), factory=EarlyCrowd)
    with pytest.raises(CheckFailed, match=r"\[unsupported\] the attribute crowd of Crowd"):
        check_snapshot(Crowd(), factory=Crowd, steps=20)


class Keyed(Plain):
    """Dictionaries keyed by beasts: their order, look-ups and deletions decide the rewards."""

    def begin(self, seed):
        self.line = [Beast() for _ in range(5)]
        self.herd = {beast: number for number, beast in enumerate(self.line)}
        self.friends = defaultdict(list, {self.line[0]: [self.line[1]]})
        self.pairs = {(first, second): 1 for first in self.line for second in self.line}

    def roll(self):
        place = super().roll() % len(self.line)
        beast = self.line.pop(place)
        # It moves to the end, and a new beast comes to the front of a new dictionary.
        self.herd[beast] = self.herd.pop(beast) + 1
        self.line += [beast, Beast()]
        self.herd = {self.line[-1]: -1, **self.herd}
        self.friends[beast].append(self.line[place])
        known = sum(len(self.friends[other]) for other in self.friends[beast])
        self.pairs.pop((beast, beast), None)
        paired = sum(number * self.pairs.get((other, beast), 2) for number, other in enumerate(self.herd))
        return known + paired + sum(number * worth for number, worth in enumerate(self.herd.values()))


class LockedKeyed(Keyed):
    """The same, and it cannot be copied."""

    def begin(self, seed):
        super().begin(seed)
        self.lock = threading.Lock()


@pytest.mark.parametrize(("make", "level"), [(Keyed, "deepcopy"), (LockedKeyed, "replay")])
def test_dictionaries_keyed_by_objects_are_restored_exactly(make, level):
    for turns in range(0, 12, 3):
        env = make() if level == "deepcopy" else replayable(make())
        env.reset(seed=turns)
        assert env_support(env).level == level
        play(env, [0] * turns)
        snap, garbage = snapshot(env), []
        went_on = play(env, [0] * 9)
        for _ in range(10):
            # Objects that stay alive move the addresses of the next ones.
            garbage += [Beast() for _ in range(7)]
            restore(env, snap)
            assert play(env, [0] * 9) == went_on


def test_a_stack_of_gymnasium_is_accepted():
    assert unordered_in(gym.make("CartPole-v1")) is None
