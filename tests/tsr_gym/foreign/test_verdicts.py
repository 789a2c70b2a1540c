"""Findings that live as long as what they are about."""

import gc

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign.objects import SharedVerdicts, Verdicts


class Thing:
    """Equal to everything, and so of no use as a key."""

    __hash__ = None

    def __eq__(self, other):
        return True


def test_a_finding_is_made_once_for_each_object_and_forgotten_with_it():
    found, verdicts = [], Verdicts()

    def find(thing):
        found.append(thing.name)
        return thing.name.upper()

    one, other = Thing(), Thing()
    one.name, other.name = "one", "other"
    assert [verdicts.of(thing, find) for thing in (one, other, one, other)] == ["ONE", "OTHER", "ONE", "OTHER"]
    assert found == ["one", "other"]
    assert len(verdicts._found) == 2
    del one
    gc.collect()
    assert len(verdicts._found) == 1


class Walk(worlds.Plain):
    """Takes arguments."""

    def __init__(self, bonus=0, render_mode=None):
        super().__init__(render_mode)
        self.bonus = bonus


def made(name="Walk-v0", entry_point=Walk, **kwargs):
    return gym.make(EnvSpec(name, entry_point=entry_point), **kwargs).unwrapped


def make_walk(bonus=0, render_mode=None):
    return Walk(bonus + 1, render_mode)


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (lambda: made(bonus=3), True),
        (lambda: made(bonus=3, render_mode="rgb_array"), True),
        (lambda: made(bonus=4), False),
        (lambda: made(bonus=3, name="Walk-v1"), False),
        (lambda: made(bonus=3, entry_point=make_walk), False),
        (lambda: made(bonus=len), False),
        (lambda: Walk(3), False),
    ],
    ids=["alike", "another mode", "other arguments", "another id", "another maker", "given an object", "no spec"],
)
def test_those_that_were_made_alike_share_a_finding(other, shared):
    found, verdicts = [], SharedVerdicts()
    one, second = made(bonus=3), other()
    for env in (one, second, one, second):
        assert verdicts.of(env, lambda env: found.append(env) or env.bonus) == (3 if shared else env.bonus)
    assert len(found) == (1 if shared else 2)


def test_environments_that_were_given_objects_share_nothing():
    verdicts = SharedVerdicts()
    one, other = made(bonus=worlds.Body(1.0)), made(bonus=worlds.Body(1.0))
    assert verdicts.of(one, id) != verdicts.of(other, id)


def test_what_may_still_change_is_looked_at_again_unless_its_kind_is_known():
    found, verdicts = [], SharedVerdicts()
    lonely, registered = Walk(), made()
    for env in (lonely, lonely, registered, registered):
        verdicts.anew(env, found.append)
    assert found == [lonely, lonely, registered]
