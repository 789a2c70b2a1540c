"""The attributes that every environment of a kind has: a snapshot without one is refused, and no other one is."""

import gymnasium as gym
import pygame
import pytest

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.forged import forged
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.foreign.attributes import lasting_names


class Grows(worlds.RemembersItsArguments):
    """Gets an attribute at the first step, and another at the first reset."""

    def begin(self, seed):
        self.started = True

    def step(self, action):
        self.stepped = self.started
        return super().step(action)


class Draws(worlds.RemembersItsArguments):
    """Draws on something whose name says nothing."""

    def __init__(self):
        super().__init__()
        self.backdrop = None

    def render(self):
        self.backdrop = pygame.Surface((2, 2))


def renamed(snap, name, other):
    """Return a snapshot as it comes from bytes in which an attribute of the environment has another name."""
    *outer, inner = snap.layers
    state = inner.state.portable()
    attributes = {other if known == name else known: value for known, value in state.attributes.items()}
    return forged((*outer, inner._replace(state=type(state)(state.settings, attributes, state.position, state.native))))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *[("CartPole-v1", name) for name in ("gravity", "state", "steps_beyond_terminated")],
        ("Taxi-v4", "s"),
        ("Blackjack-v1", "player"),
        (Grows, "started"),
    ],
)
def test_a_snapshot_in_which_an_attribute_was_renamed_is_refused_and_changes_nothing(make, name):
    env = gym.make(make) if isinstance(make, str) else make()
    env.reset(seed=1)
    theirs = renamed(snapshot(env), name, "renamed")
    env.step(env.action_space.sample())
    before = snapshot(env)
    with pytest.raises(SnapshotError, match=f"lacks {name}, which every {type(env.unwrapped).__name__} has"):
        restore(env, theirs)
    assert snapshot(env) == before


def test_a_new_environment_refuses_what_lacks_an_attribute_that_it_was_made_with():
    env = gym.make("CartPole-v1")
    env.reset(seed=1)
    theirs = renamed(snapshot(env), "tau", "renamed")
    with pytest.raises(SnapshotError, match="lacks tau"):
        restore(gym.make("CartPole-v1"), theirs)


def test_means_of_rendering_that_were_made_elsewhere_are_no_loss():
    env, other = Draws(), Draws()
    for one in (env, other):
        one.reset(seed=1)
    env.step(2)
    env.render()
    # A surface is no state; nothing was drawn here yet.
    restore(other, Snapshot.from_bytes(snapshot(env).to_bytes()))
    assert other.position == env.position


def test_what_an_episode_adds_comes_and_goes():
    env = Grows()
    env.reset(seed=1)
    start = Snapshot.from_bytes(snapshot(env).to_bytes())
    env.step(1)
    later = Snapshot.from_bytes(snapshot(env).to_bytes())
    restore(env, start)
    assert "stepped" not in vars(env)
    restore(env, later)
    assert env.stepped
    restore(env, start)
    new = Grows()
    restore(new, later)
    assert snapshot(new).digest == later.digest


def test_lasting_names_are_those_of_a_new_environment_after_its_first_reset():
    env = Grows()
    env.reset(seed=1)
    env.step(1)
    assert {"position", "bonus", "started"} <= lasting_names(env)
    assert "stepped" not in lasting_names(env)


def test_where_no_other_environment_can_be_made_no_attribute_is_known_to_last():
    assert lasting_names(worlds.Plain()) == frozenset()
