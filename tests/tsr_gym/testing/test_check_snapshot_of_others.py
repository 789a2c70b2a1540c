"""check_snapshot judges environments that others wrote: those without a fault pass, and faults are named."""

import gymnasium as gym
import pytest
from gymnasium.wrappers import (
    DelayObservation,
    FrameStackObservation,
    NormalizeObservation,
    RecordEpisodeStatistics,
    StickyAction,
    TimeAwareObservation,
    TimeLimit,
)

from tests.tsr_gym.testing import foreign_faults
from tests.tsr_gym.testing.foreign_worlds import Drift, Echo, Locked, Many, ReusesItsBuffer, Stated, Unseeded
from tsr_gym import CheckFailed
from tsr_gym.stack import env_support
from tsr_gym.testing import check_snapshot


def sticky_drift():
    return FrameStackObservation(StickyAction(TimeLimit(Drift(), 5), 0.4, (1, 3)), 2)


def counted_echo():
    return RecordEpisodeStatistics(TimeAwareObservation(TimeLimit(Echo(Stated()), 5)))


def delayed_lock():
    return DelayObservation(TimeLimit(Locked(), 6), 2)


def normalised_drift():
    return NormalizeObservation(Drift())


WORLDS = {
    Drift: "deepcopy",
    Stated: "exact",
    Locked: "replay",
    Many: "deepcopy",
    ReusesItsBuffer: "deepcopy",
    sticky_drift: "deepcopy",
    counted_echo: "exact",
    delayed_lock: "replay",
    normalised_drift: "deepcopy",
}


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_an_environment_of_others_without_a_fault_passes(make):
    env = make()
    env.reset(seed=0)
    assert env_support(env).level == WORLDS[make]
    check_snapshot(env, factory=make, seeds=(0, 1), steps=8, other_processes=False)


@pytest.mark.parametrize("make", [Drift, Stated, Locked, Many], ids=lambda make: make.__name__)
def test_an_environment_of_others_plays_alike_in_other_processes(make):
    check_snapshot(make(), factory=make, seeds=(2,), steps=5)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_environments_of_gymnasium_pass_by_their_spec(env_id):
    check_snapshot(gym.make(env_id), seeds=(0,), steps=6)


FAULTS = {
    "ForgetsItsSpeed": ("replay", "turn 1: the state of ForgetsItsSpeed differs", "ForgetsItsSpeed.velocity"),
    "LendsItsList": ("aliasing", "the snapshot of turn 0 changed", "LendsItsList"),
    "RollsElsewhere": ("global_random", "RollsElsewhere.step"),
    "CopiesThatRollElsewhere": ("unsupported", "the global generator of numpy.random"),
    "LooksAtTheClock": ("wall_clock", "LooksAtTheClock.observe"),
    "SharesItsDice": ("hidden_generator", "SharesItsDice.dice (class attribute)"),
    "CountsForAll": ("same_seed", "`reward` differs", "CountsForAll.steps (class attribute)"),
    "GrowsOld": ("same_seed", "`reward` differs", "GrowsOld.age"),
    "BringsItsDice": ("same_seed", "`reward` differs", "BringsItsDice.dice"),
    "ListsASet": ("other_process", "info['seen'] differs"),
    "counted_steps": ("unsupported", "CountsSteps", "steps_so_far"),
    "forgetful_echo": ("replay", "the state of ForgetfulEcho differs"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(name):
    make = vars(foreign_faults)[name]
    check, *words = FAULTS[name]
    with pytest.raises(CheckFailed) as caught:
        check_snapshot(make(), factory=make, steps=8, seeds=(0, 1), other_processes=check == "other_process")
    assert caught.value.check == check
    assert [word for word in words if word not in str(caught.value)] == []


def test_what_neither_copies_nor_repeats_itself_is_refused_with_both_reasons():
    env = gym.make(gym.envs.registration.EnvSpec("Unseeded-v0", entry_point=Unseeded))
    with pytest.raises(CheckFailed, match=r"Unseeded has no exact snapshots: .*lock.* does not repeat") as caught:
        check_snapshot(env)
    assert caught.value.check == "unsupported"


def test_a_class_that_gymnasium_makes_is_found_by_other_processes():
    check_snapshot(gym.make(gym.envs.registration.EnvSpec("Stated-v0", entry_point=Stated)), steps=3, seeds=(0,))


def test_a_global_generator_and_the_clock_stand_as_before():
    import random
    import time

    before = random.getstate(), time.time
    check_snapshot(Drift(), factory=Drift, seeds=(0,), steps=3, other_processes=False)
    assert (random.getstate(), time.time) == before
