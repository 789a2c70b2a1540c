"""Findings that live as long as what they are about."""

import gc

from tsr_gym.foreign.verdicts import Verdicts


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
