"""What two environments must have in common, and the tables that are no part of the state."""

import ast
import inspect

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym import SnapshotError
from tsr_gym.foreign.attributes import compare, settings_of, tables_of

TABLED = ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"]


def test_equal_arguments_are_equal_settings_and_others_are_not():
    def settings(name="FrozenLake-v1", **arguments):
        return settings_of(gym.make(name, **arguments).unwrapped)

    assert settings() == settings(render_mode="ansi")
    different = [settings(), settings(is_slippery=False), settings(map_name="8x8"), settings("CliffWalking-v1")]
    assert len(set(different)) == 4


def test_a_difference_is_told_in_words():
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
