"""Objects and their attributes: settings, what lasts beyond a reset, rendering handles, and remaking an environment."""

import ast
import gc
import inspect
import threading

import gymnasium as gym
import numpy as np
import pygame
import pytest
from gymnasium.envs.registration import EnvSpec

from tests.abuse.attacks import forged
from tests.tsr_gym.foreign import worlds
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.foreign.attributes import compare, is_state, lasting_names, settings_of, tables_of
from tsr_gym.foreign.objects import (
    SharedVerdicts,
    Verdicts,
    attributes_of,
    can_remake,
    frees,
    fresh,
    holds_handles,
    is_handle,
    is_plain,
    names_handle,
    remake,
    set_attributes,
)

# Gymnasium 1.2 has v3, later ones v4.
TAXI = max(name for name in gym.registry if name.startswith("Taxi-v"))
TABLED = ["FrozenLake-v1", TAXI, "CliffWalking-v1"]


def test_equal_arguments_are_equal_settings_and_a_difference_is_described():
    def settings(name="FrozenLake-v1", **arguments):
        return settings_of(gym.make(name, **arguments).unwrapped)

    assert settings() == settings(render_mode="ansi")
    different = [settings(), settings(is_slippery=False), settings(map_name="8x8"), settings("CliffWalking-v1")]
    assert len(set(different)) == 4
    env = gym.make("FrozenLake-v1", is_slippery=False).unwrapped
    with pytest.raises(SnapshotError, match=r"wanted .*is_slippery=False.*, got .*is_slippery=True.*same arguments"):
        compare(env, settings_of(gym.make("FrozenLake-v1", is_slippery=True).unwrapped))
    with pytest.raises(SnapshotError, match="damaged"):
        compare(env, 3)
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
        (TAXI, "s"),
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
    if name == "gravity":
        with pytest.raises(SnapshotError, match="lacks gravity"):
            restore(gym.make(make), theirs)


def test_means_of_rendering_that_were_made_elsewhere_are_no_loss():
    env, other = Draws(), Draws()
    for twin in (env, other):
        twin.reset(seed=1)
    env.step(2)
    env.render()
    # A surface is not state; nothing was drawn here yet.
    restore(other, Snapshot.from_bytes(snapshot(env).to_bytes()))
    assert other.position == env.position


def test_what_an_episode_adds_comes_and_goes_and_lasting_names_do_not():
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
    env = Grows()
    env.reset(seed=1)
    env.step(1)
    assert {"position", "bonus", "started"} <= lasting_names(env)
    assert "stepped" not in lasting_names(env)
    assert lasting_names(worlds.Plain()) == frozenset()


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


def test_plain_classes_and_what_frees_something_are_known():
    plain = [Own, Slotted, Derived, worlds.Body, worlds.RemembersItsArguments, type(gym.make("CartPole-v1").unwrapped)]
    assert all(map(is_plain, plain))
    assert not any(
        map(is_plain, [Array, ListOfOwn, np.random.Generator, threading.local, dict, type(threading.Lock())])
    )
    for name in ("__reduce__", "__deepcopy__", "__setstate__", "__getnewargs__"):
        assert not is_plain(type("Says", (Own,), {name: lambda self, *rest: None}))
    derived = Derived()
    derived.a, derived.c = 1, 3
    assert attributes_of(derived) == {"a": 1, "c": 3}
    other = Derived()
    set_attributes(other, {"a": 5, "b": 6, "c": 7})
    assert attributes_of(other) == {"a": 5, "b": 6, "c": 7}
    assert frees(worlds.Frees)
    assert frees(worlds.Resource)
    assert not frees(Own)
    assert not frees(type(number for number in ()))


def test_surfaces_and_clocks_are_means_of_rendering_and_positions_and_mixtures_are_state():
    surface = pygame.Surface((2, 2))
    for value in (surface, pygame.time.Clock()):
        assert is_handle(value)
        assert holds_handles([value, value])
        assert holds_handles({"a": (value,)})
        assert not is_state("anything", value)
        assert not is_state("anything", [[value]])
    for value in (pygame.Vector2(1, 2), pygame.Rect(1, 2, 3, 4), 3, None, [], [surface, 1], {}):
        assert not holds_handles(value)
        assert is_state("position", value)


def test_names_decide_whether_none_is_a_means_of_rendering_and_what_gymnasium_keeps_is_no_state():
    for name in ("screen", "window_surface", "clock", "_viewer", "agent_img", "ice_crack_imgs"):
        assert (names_handle(name), is_state(name, None), is_state(name, 3)) == (True, False, True)
    for name in ("state", "clockwise", "screened", "last_action", "surfaces_left"):
        assert not names_handle(name)
    kept = "action_space", "observation_space", "spec", "metadata", "render_mode", "_np_random", "_ezpickle_args"
    assert not any(is_state(name, (1, 2)) for name in kept)


def test_a_spec_or_the_arguments_make_another_one_without_window_and_wrappers():
    lake = gym.make("FrozenLake-v1", is_slippery=False).unwrapped
    other = fresh(lake)
    assert type(other) is type(lake)
    assert (other.P, other.spec.kwargs) == (lake.P, lake.spec.kwargs)
    assert other is not lake
    assert fresh(worlds.RemembersItsArguments(bonus=7)).bonus == 7
    env = worlds.RemembersItsArguments(render_mode="rgb_array")
    assert fresh(env).render_mode == "rgb_array"
    assert fresh(env, unseen=True).render_mode is None

    def factory(bonus):
        return gym.wrappers.TimeLimit(worlds.RemembersItsArguments(bonus), 3)

    env = gym.make(gym.envs.registration.EnvSpec("Made-v0", entry_point=factory, kwargs={"bonus": 4})).unwrapped
    assert fresh(env).bonus == 4
    assert not can_remake(env)


def test_unknown_arguments_and_a_failing_constructor_are_reported():
    with pytest.raises(SnapshotError, match="arguments of this Plain are not recorded"):
        fresh(worlds.Plain())

    class Once(worlds.RemembersItsArguments):
        made = 0

        def __init__(self):
            type(self).made += 1
            if type(self).made > 1:
                raise OSError("the port is taken")
            super().__init__()
            self._ezpickle_args = ()
            self._ezpickle_kwargs = {}

    env = Once()
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match="another Once could not be made: the port is taken"):
        fresh(env)
    held = dict(vars(env))
    with pytest.raises(SnapshotError, match="Once could not be made again"):
        remake(env)
    assert vars(env) == held


def test_an_environment_that_is_made_anew_keeps_generator_spaces_and_arguments():
    env = worlds.RemembersItsArguments(bonus=5)
    env.reset(seed=1)
    env.episode_only = 1
    space, generator = env.action_space, env.np_random
    remake(env)
    assert (env.position, env.bonus) == (0, 5)
    assert "episode_only" not in vars(env)
    assert env.action_space is space
    assert env.np_random is generator


class Thing:
    """Equal to everything, so it cannot be a key."""

    __hash__ = None

    def __eq__(self, other):
        return True


def test_a_verdict_is_made_once_for_each_object_and_dropped_with_it():
    examined, verdicts = [], Verdicts()

    def find(thing):
        examined.append(thing.name)
        return thing.name.upper()

    thing_a, thing_b = Thing(), Thing()
    thing_a.name, thing_b.name = "one", "other"
    names = [verdicts.of(thing, find) for thing in (thing_a, thing_b, thing_a, thing_b)]
    assert names == ["ONE", "OTHER", "ONE", "OTHER"]
    assert (examined, len(verdicts._verdicts)) == (["one", "other"], 2)
    del thing_a
    gc.collect()
    assert len(verdicts._verdicts) == 1


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
        (lambda: made(bonus=3), True), (lambda: made(bonus=3, render_mode="rgb_array"), True),
        (lambda: made(bonus=4), False), (lambda: made(bonus=3, name="Walk-v1"), False),
        (lambda: made(bonus=3, entry_point=make_walk), False), (lambda: made(bonus=len), False),
        (lambda: Walk(3), False),
    ],
    ids=["alike", "another mode", "other arguments", "another id", "another maker", "given an object", "no spec"],
)  # fmt: skip
def test_environments_with_equal_arguments_share_a_verdict(other, shared):
    examined, verdicts = [], SharedVerdicts()
    first, second = made(bonus=3), other()
    for env in (first, second, first, second):
        assert verdicts.of(env, lambda env: examined.append(env) or env.bonus) == (3 if shared else env.bonus)
    assert len(examined) == (1 if shared else 2)


def test_given_objects_are_not_shared_and_what_may_change_is_looked_at_again():
    verdicts = SharedVerdicts()
    first, other = made(bonus=worlds.Body(1.0)), made(bonus=worlds.Body(1.0))
    assert verdicts.of(first, id) != verdicts.of(other, id)
    examined, verdicts = [], SharedVerdicts()
    lonely, registered = Walk(), made()
    for env in (lonely, lonely, registered, registered):
        verdicts.anew(env, examined.append)
    assert examined == [lonely, lonely, registered]
