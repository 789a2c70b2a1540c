"""Attributes: which are settings, which last beyond a reset, and how settings are compared."""

import ast
import inspect

import gymnasium as gym
import numpy as np
import pygame
import pytest

from tests.abuse.attacks import forged
from tests.tsr_gym.foreign import worlds
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.foreign.attributes import compare, lasting_names, settings_of, tables_of

TABLED = ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"]


def test_equal_arguments_are_equal_settings_and_others_are_not():
    def settings(name="FrozenLake-v1", **arguments):
        return settings_of(gym.make(name, **arguments).unwrapped)

    assert settings() == settings(render_mode="ansi")
    different = [settings(), settings(is_slippery=False), settings(map_name="8x8"), settings("CliffWalking-v1")]
    assert len(set(different)) == 4


def test_a_difference_is_described():
    env = gym.make("FrozenLake-v1", is_slippery=False).unwrapped
    with pytest.raises(SnapshotError, match=r"wanted .*is_slippery=False.*, got .*is_slippery=True.*same arguments"):
        compare(env, settings_of(gym.make("FrozenLake-v1", is_slippery=True).unwrapped))
    with pytest.raises(SnapshotError, match="damaged"):
        compare(env, 3)


def test_settings_follow_a_space_that_is_replaced():
    env = worlds.Plain()
    before = settings_of(env)
    assert settings_of(env) is before
    env.action_space = gym.spaces.Discrete(7)
    assert settings_of(env) != before


@pytest.mark.parametrize("name", TABLED)
def test_a_table_that_is_replaced_makes_other_settings(name):
    env = gym.make(name).unwrapped
    before = settings_of(env)
    env.P = {state: dict(moves) for state, moves in env.P.items()}
    assert settings_of(env) == before
    env.P = {**env.P, 0: {}}
    assert settings_of(env) != before


@pytest.mark.parametrize("name", TABLED)
def test_tables_never_change_while_an_environment_is_played(name):
    env = gym.make(name).unwrapped
    tables = tables_of(type(env))
    before = {table: repr(np.asarray(vars(env)[table]).tolist()) for table in tables}
    env.action_space.seed(0)
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(50):
            if env.step(env.action_space.sample())[2]:
                break
    assert {table: repr(np.asarray(vars(env)[table]).tolist()) for table in tables} == before


@pytest.mark.parametrize("name", TABLED)
def test_no_method_that_is_called_after_the_constructor_writes_to_a_table(name):
    cls = type(gym.make(name).unwrapped)
    tree = ast.parse(inspect.getsource(cls))
    methods = {node.name: node for node in tree.body[0].body if isinstance(node, ast.FunctionDef)}
    reached, waiting = set(), ["reset", "step", "render", "close"]
    while waiting:
        method = waiting.pop()
        if method in methods and method not in reached:
            reached.add(method)
            calls = [node.func for node in ast.walk(methods[method]) if isinstance(node, ast.Call)]
            waiting += [call.attr for call in calls if isinstance(call, ast.Attribute)]
    assert "__init__" not in reached
    written = set()
    for method in reached:
        for node in ast.walk(methods[method]):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                while isinstance(target, ast.Subscript):
                    target = target.value
                if isinstance(target, ast.Attribute):
                    written.add(target.attr)
    assert written
    assert not written & tables_of(cls)


class Grows(worlds.RemembersItsArguments):
    """Gets an attribute at the first step, and another at the first reset."""

    def begin(self, seed):
        self.started = True

    def step(self, action):
        self.stepped = self.started
        return super().step(action)


class Draws(worlds.RemembersItsArguments):
    """Draws on an object whose attribute name is no usual one."""

    def __init__(self):
        super().__init__()
        self.backdrop = None

    def render(self):
        self.backdrop = pygame.Surface((2, 2))


def renamed(snap, name, other):
    """Return a snapshot from bytes in which an attribute of the environment has another name."""
    *outer, inner = snap.layers
    state = inner.state.portable()
    attributes = {other if present == name else present: value for present, value in state.attributes.items()}
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
    for twin in (env, other):
        twin.reset(seed=1)
    env.step(2)
    env.render()
    # A surface is not state; nothing was drawn here yet.
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
