"""Thawing: frozen values survive bytes, and damaged ones are refused."""

import math
import sys
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given

import tsr_gym
from tests.abuse.attacks import forged
from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.test_freezing import VALUES
from tests.tsr_gym.foreign.worlds import play
from tests.tsr_gym.own_process import run_python
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.codec import decode, encode
from tsr_gym.foreign.attributes import AttributesState, PortableAttributes
from tsr_gym.foreign.freezing import Members, OtherArray, Randomness, Reduced, Thing
from tsr_gym.foreign.thawing import Made, Named, Thawer, frozen, imported, portable, portable_attribute, same
from tsr_gym.snapshots import Layer

HERE = frozenset({"tests"})


@dataclass
class Point:
    x: float
    y: list


def through_bytes(value, packages=HERE, here=None):
    return imported(decode(encode(portable(frozen(value)))), packages, here)


@given(VALUES.filter(lambda value: "Key" not in repr(value)))
def test_plain_values_come_out_of_bytes_as_they_went_in(value):
    assert same(through_bytes(value), frozen(value))


@pytest.mark.parametrize(
    "value",
    [
        {3, 1},
        bytearray(b"ab"),
        1 - 2j,
        range(1, 9, 2),
        slice(1, None),
        deque([[1]], maxlen=3),
        defaultdict(int, a=1),
        OrderedDict(b=1, a=2),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array([None, (1, [2])], dtype=object),
        np.random.default_rng(1),
        np.random.Generator(np.random.MT19937(1)),
        np.random.RandomState(1),
        np.random.PCG64(1),
        Point(1.5, [2]),
        {(1, 2): Point(0.0, [])},
        np.dtype("<f4"),
        [np.float32, int],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_environments_hold_comes_out_of_bytes_as_it_went_in(value):
    assert same(through_bytes(value), frozen(value))


def test_the_layout_of_an_array_in_memory_goes_through_bytes():
    array = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    assert through_bytes(array).strides == array.strides


def test_sharing_goes_through_bytes():
    row = [0]
    assert same(through_bytes([row, row, {"again": row}]), frozen([row, row, {"again": row}]))


def test_only_classes_and_functions_of_the_environments_own_packages_are_found():
    assert through_bytes([Point]) == [Point]
    for packages in (frozenset(), frozenset({"os"})):
        with pytest.raises(SnapshotError, match=r"tests\.tsr_gym\.foreign\.test_thawing\.Point, which is not in"):
            through_bytes(Point(1.0, []), packages)
    assert through_bytes([int, float, defaultdict], frozenset()) == [int, float, defaultdict]


def test_a_function_without_a_global_name_is_taken_from_the_environment():
    def make():
        return lambda: None

    first, other = make(), make()
    name = portable_attribute(frozen(first))
    assert imported(name, HERE, other) is other
    with pytest.raises(SnapshotError, match="every reset makes"):
        imported(name, HERE, None)
    with pytest.raises(SnapshotError, match="which another process cannot find by its name"):
        portable(frozen([first]))


def test_what_a_function_holds_goes_through_bytes_and_its_code_does_not():
    def make(held):
        return lambda: held

    through = decode(encode(portable_attribute(frozen(make([1, 2])))))
    made = Thawer({}).thawed(imported(through, HERE, make(None)))
    assert made() == [1, 2]
    with pytest.raises(SnapshotError, match="every reset makes"):
        imported(through, HERE, len)


def test_a_module_is_taken_from_the_environment_too():
    name = portable_attribute(frozen(math))
    assert imported(name, HERE, math) is math
    with pytest.raises(SnapshotError, match="refused"):
        imported(name, HERE, None)


def hostile(attributes):
    env = worlds.Plain()
    env.reset(seed=1)
    layer = snapshot(env).layers[0]
    state = layer.state.portable()
    made = PortableAttributes(state.settings, state.attributes | attributes, state.position, None)
    return env, Snapshot((Layer(layer.kind, made),))


@pytest.mark.parametrize(
    "attributes",
    [
        {"__class__": Named("tests.tsr_gym.foreign.worlds", "Locked")},
        {"action_space": 3},
        {"tool": Named("subprocess", "Popen")},
        {"tool": Named("os", "system")},
        {"tool": Thing(Named("subprocess", "Popen"), {})},
        {"tool": Thing(Named("tests.tsr_gym.foreign.worlds", "Resource"), {"__class__": 1})},
        {"tool": Thing(Named("tests.tsr_gym.foreign.worlds", "Mode"), {})},
        {"tool": Reduced(Named("tests.tsr_gym.own_process", "run_python"), ("1",), None, None, None)},
        {"tool": Made("eval", "1")},
        {"tool": Members(Named("tests.tsr_gym.own_process", "run_python"), ("1",))},
        {"tool": Randomness("Generator", 3)},
        {"tool": OtherArray("os", np.zeros(2))},
        {"step": 3},
        {"unwrapped": 3},
        {"begin": Named("tests.tsr_gym.foreign.worlds", "Body")},
        {"tool": Randomness("Loaded", 3)},
    ],
    ids=lambda attributes: str(attributes)[:40],
)
def test_bytes_that_were_made_up_are_refused_and_change_nothing(attributes):
    env, snap = hostile(attributes)
    before = snapshot(env)
    with pytest.raises(SnapshotError):
        restore(env, Snapshot.from_bytes(snap.to_bytes()))
    assert snapshot(env) == before


@pytest.mark.parametrize(("library", "module"), [("jax", "jax.numpy"), ("torch", "torch")])
def test_an_array_of_a_library_does_not_import_it(library, module, monkeypatch):
    monkeypatch.delitem(sys.modules, module, raising=False)
    env, snap = hostile({"tool": OtherArray(library, np.zeros(2))})
    with pytest.raises(SnapshotError, match=f"array of {module}: import"):
        restore(env, Snapshot.from_bytes(snap.to_bytes()))
    assert module not in sys.modules


def test_a_captured_state_itself_never_comes_from_bytes():
    env = worlds.Plain()
    env.reset(seed=1)
    before = snapshot(env)
    (layer,) = before.layers
    state = AttributesState(layer.state.settings, {"position": Thing(3, {"__class__": 4})}, layer.state.position)
    with pytest.raises(SnapshotError, match="not a snapshot"):
        restore(env, forged((layer._replace(state=state),)))
    assert snapshot(env) == before


def test_harmless_bytes_that_were_made_up_are_accepted():
    env, snap = hostile({"tool": Thing(Named("tests.tsr_gym.foreign.worlds", "Body"), {"speed": 2.0})})
    restore(env, Snapshot.from_bytes(snap.to_bytes()))
    assert env.tool.speed == 2.0


CHILD = """
import gymnasium as gym, tsr_gym
from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import play
env = {make}
{prepare}
tsr_gym.restore(env, tsr_gym.Snapshot.from_bytes(bytes.fromhex({data!r})))
print(play(env, {actions!r}), tsr_gym.snapshot(env).digest)
"""


@pytest.mark.parametrize(
    ("make", "prepare"),
    [
        ("gym.make('CartPole-v1')", ""),
        ("gym.make('Blackjack-v1')", ""),
        ("gym.make('FrozenLake-v1')", ""),
        ("tsr_gym.replayable(worlds.Locked())", ""),
        # Its reset makes an object with an unnamed function, so the restored environment must be reset first.
        ("worlds.ManyKinds()", "env.reset(seed=0)"),
    ],
)
def test_a_snapshot_continues_equally_here_and_in_another_process(make, prepare):
    env = eval(make, {"gym": gym, "worlds": worlds, "tsr_gym": tsr_gym})
    env.reset(seed=2)
    actions = [1, 0, 1, 1]
    env.step(1)
    snap = snapshot(env)
    code = CHILD.format(make=make, prepare=prepare, data=snap.to_bytes().hex(), actions=actions)
    assert run_python(code, hash_seed="77").strip() == f"{play(env, actions)} {snapshot(env).digest}"


def test_what_a_reset_makes_must_have_been_made():
    env = worlds.ManyKinds()
    env.reset(seed=1)
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    with pytest.raises(SnapshotError, match=r"pure.*ManyKinds\.begin.*call reset\(\) first"):
        restore(worlds.ManyKinds(), snap)
    restore(env, snap)
