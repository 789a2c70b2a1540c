"""Snapshot: an immutable value with bytes that are verified."""

import copy
import pickle
import struct
import sys
import tracemalloc
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from types import ModuleType

import gymnasium as gym
import pytest

from tests.abuse.attacks import forged
from tests.tsr_gym.own_process import run_python
from tests.tsr_gym.testing.worlds import Dice, Place, Walk
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.codec import encode, record_of
from tsr_gym.random_stream import Drawn
from tsr_gym.snapshots import MAGIC, VERSION


def taken(seed=1, actions=()):
    env = Walk()
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
    return snapshot(env)


def test_equal_moments_give_equal_snapshots_and_others_do_not():
    assert taken() == taken()
    assert hash(taken()) == hash(taken())
    assert taken().digest == taken().digest
    assert len({taken(), taken(), taken(seed=2), taken(actions=["Right"]), taken(actions=["Right", "Left"])}) == 4


@pytest.mark.parametrize(
    "other",
    [
        ["Left", "Right"],  # the same place, another count of turns
        ["Right || Left"],  # the same place, another count of actions
    ],
)
def test_counters_are_part_of_the_digest(other):
    assert taken(actions=other).layers[-1].state.episode.state == taken().layers[-1].state.episode.state
    assert taken(actions=other) != taken(actions=[""])


def test_the_random_state_is_part_of_the_digest():
    env = Dice()
    env.reset(seed=1)
    before = snapshot(env)
    env.np_random.random()
    assert snapshot(env) != before


def test_a_stream_that_was_only_seeded_is_equal_to_one_that_was_opened():
    env = Dice()
    env.reset(seed=1)
    snap = env.snapshot()
    env.restore(snap, seed=5)
    seeded = snapshot(env)
    assert env.np_random is not None
    opened = snapshot(env)
    assert type(seeded.layers[-1].state.position) is not type(opened.layers[-1].state.position)
    assert seeded == opened


def test_a_snapshot_is_not_equal_to_anything_else():
    assert taken() != taken().digest
    assert taken() != None  # noqa: E711


def test_nothing_of_a_snapshot_can_be_set():
    with pytest.raises(AttributeError, match="immutable"):
        taken().layers = ()
    with pytest.raises(AttributeError, match="immutable"):
        taken().anything = 1


@pytest.mark.parametrize(
    "through",
    [
        lambda snap: Snapshot.from_bytes(snap.to_bytes()),
        lambda snap: pickle.loads(pickle.dumps(snap)),
        copy.deepcopy,
        copy.copy,
    ],
    ids=["bytes", "pickle", "deepcopy", "copy"],
)
def test_a_snapshot_survives_every_way_of_copying(through):
    snap = taken(actions=["Jump", "Right"])
    twin = through(snap)
    assert twin == snap
    assert hash(twin) == hash(snap)
    assert twin.to_bytes() == snap.to_bytes()
    assert repr(twin) == repr(snap)
    env = Walk()
    restore(env, twin)
    assert snapshot(env) == snap


def test_the_representation_names_the_layers():
    env = gym.wrappers.TimeLimit(Walk(), 5)
    env.reset(seed=1)
    assert repr(snapshot(env)).startswith("Snapshot(TimeLimit < Walk, digest=")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "wanted the bytes of"),
        (lambda data: data[:5], "wanted the bytes of"),
        (lambda data: b"PK" + data[2:], "wanted the bytes of"),
        (lambda data: data[:20], "cut short"),
        (lambda data: data[:-1], "damaged"),
        (lambda data: data + b"x", "damaged"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "damaged"),
        (lambda data: MAGIC + bytes([VERSION + 1]) + data[9:], "wanted snapshot version 1, got 2"),
        (lambda data: bytearray(data), "wanted the bytes of"),
        (lambda data: data.hex(), "wanted the bytes of"),
    ],
)
def test_damaged_bytes_are_refused(damage, message):
    with pytest.raises(SnapshotError, match=message):
        Snapshot.from_bytes(damage(taken().to_bytes()))


def test_bytes_can_be_held_where_the_classes_are_unknown_but_not_restored():
    code = """
import sys
from tsr_gym import Snapshot, SnapshotError
snap = Snapshot.from_bytes(bytes.fromhex(DATA))
print(snap.digest)
try:
    snap.layers
except SnapshotError as error:
    print(error)
"""
    snap = taken()
    digest, message = run_python(f"DATA = {snap.to_bytes().hex()!r}\n{code}").strip().splitlines()
    assert digest == snap.digest
    assert "import tests.tsr_gym.testing.worlds" in message


def test_a_state_without_plain_form_can_be_restored_in_memory_but_has_no_bytes():
    class Odd(Walk):
        def initial(self, rng, options):
            return object()

        def observe(self, state):
            return "?"

        def is_success(self, state):
            return False

    env = Odd()
    env.reset(seed=1)
    snap = snapshot(env)
    restore(env, snap)
    with pytest.raises(SnapshotError, match="object has no pickle-free form"):
        snap.to_bytes()
    assert snap == snapshot(env)
    assert len({snap, snapshot(env)}) == 1
    env.reset(seed=1)
    assert snap != snapshot(env)


def test_bytes_that_hold_no_layers_are_refused_when_they_are_used():
    env = Walk()
    env.reset(seed=1)
    before = snapshot(env)
    for value in ((1, 2), (), 7, ("ab", "cd"), (Place(1, 2),), [before.layers[0]]):
        with pytest.raises(SnapshotError, match="not a snapshot"):
            restore(env, forged(value))
    with pytest.raises(SnapshotError, match="not a snapshot"):
        forged((Drawn("tests:kind", 2),)).layers  # noqa: B018
    assert snapshot(env) == before


@dataclass(frozen=True)
class Bomb:
    """A value of a foreign library, which records that it is made."""

    made = []  # noqa: RUF012
    fuse: int

    def __post_init__(self):
        self.made.append(self.fuse)


@pytest.fixture
def library(monkeypatch):
    """Return an imported library with a class that bytes may name."""
    module = ModuleType("somebodys_library")
    module.Bomb = Bomb
    monkeypatch.setitem(sys.modules, "somebodys_library", module)
    monkeypatch.setattr(Bomb, "__module__", "somebodys_library")
    Bomb.made.clear()
    record_of.cache_clear()
    yield module
    record_of.cache_clear()


def test_bytes_make_no_objects_of_packages_that_are_not_the_environments_own(library):
    env = gym.wrappers.TimeLimit(Walk(), 5)
    env.reset(seed=1)
    before = snapshot(env)
    limit, inner = before.layers
    bomb = Bomb(3)
    harmful = [
        (limit, inner._replace(state=inner.state._replace(episode=bomb))),
        (limit, inner._replace(state=inner.state._replace(rules=(bomb,)))),
        (limit._replace(state=(bomb,)), inner),
        # Naming the library as the module of an environment does not make it one.
        (limit._replace(kind="somebodys_library:Bomb", state=bomb), inner),
    ]
    snaps = [forged(layers) for layers in harmful]
    Bomb.made.clear()
    for snap in snaps:
        with pytest.raises(SnapshotError):
            restore(env, snap)
        with pytest.raises(SnapshotError, match="not in the environment's own packages"):
            snap.layers  # noqa: B018
    assert Bomb.made == []
    assert snapshot(env) == before


def test_bytes_that_would_become_much_memory_are_refused_before_they_do():
    env = Walk()
    env.reset(seed=1)
    (layer,) = snapshot(env).layers
    count, piece = 100_000, encode(deque())
    payload = encode((layer._replace(state=layer.state._replace(rules="here")),))
    bomb = payload.replace(encode("here"), b"t" + struct.pack("<I", count) + piece * count)
    digest = blake2b(bomb, digest_size=16).digest()
    snap = Snapshot.from_bytes(MAGIC + bytes([VERSION]) + digest + bomb)
    tracemalloc.start()
    with pytest.raises(SnapshotError, match="bytes of memory"):
        restore(env, snap)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5 * len(bomb)


def test_an_environment_may_hold_what_its_own_packages_make(library):
    class Armed(Walk):
        def initial(self, rng, options):
            return Bomb(3)

        def observe(self, state):
            return "tick"

        def is_success(self, state):
            return False

    Armed.__module__ = "somebodys_library"
    env = Armed()
    env.reset(seed=1)
    snap = snapshot(env)
    other = Armed()
    restore(other, Snapshot.from_bytes(snap.to_bytes()))
    assert other.state == Bomb(3)


def test_the_kinds_of_layers_are_known_without_their_classes():
    snap = taken()
    data = f"DATA = {snap.to_bytes().hex()!r}"
    code = f"{data}; from tsr_gym import Snapshot; print(Snapshot.from_bytes(bytes.fromhex(DATA)).kinds)"
    assert run_python(code).strip() == str(snap.kinds) == "['tests.tsr_gym.testing.worlds:Walk']"


def test_a_snapshot_remembers_that_it_came_as_bytes():
    snap = taken()
    assert not snap.came_as_bytes
    assert Snapshot.from_bytes(snap.to_bytes()).came_as_bytes
    assert pickle.loads(pickle.dumps(snap)).came_as_bytes
