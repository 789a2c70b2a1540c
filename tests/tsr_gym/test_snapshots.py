"""Snapshot: an immutable value with bytes that are verified."""

import copy
import pickle

import gymnasium as gym
import pytest

from tests.tsr_gym.own_process import run_python
from tests.tsr_gym.testing.worlds import Dice, Walk
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
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
    assert "import tests.tsr_gym.testing.worlds first" in message


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
    from hashlib import blake2b

    from tsr_gym.codec import encode

    payload = encode((1, 2))
    data = MAGIC + bytes([VERSION]) + blake2b(payload, digest_size=16).digest() + payload
    env = Walk()
    env.reset(seed=1)
    before = snapshot(env)
    with pytest.raises(SnapshotError, match="not a snapshot"):
        restore(env, Snapshot.from_bytes(data))
    assert snapshot(env) == before
