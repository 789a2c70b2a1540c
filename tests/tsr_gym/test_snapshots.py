"""Snapshots, their byte form, and the random stream of an environment."""

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
import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import given
from hypothesis import strategies as st

from tests.abuse.attacks import forged
from tests.conftest import run_python
from tests.tsr_gym.testing.worlds import Dice, Place, Walk
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.codec import decode, encode, record_of
from tsr_gym.random_stream import Drawn, RandomStream, Seeded, canonical, position_of
from tsr_gym.seeds import derive_seed, numbered_seeds
from tsr_gym.snapshots import MAGIC, VERSION


def taken(seed=1, actions=()):
    env = Walk()
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
    return snapshot(env)


def test_equal_moments_give_equal_snapshots_and_others_do_not():
    assert (taken(), hash(taken())) == (taken(), hash(taken()))
    assert taken().digest == taken().digest
    assert len({taken(), taken(), taken(seed=2), taken(actions=["Right"]), taken(actions=["Right", "Left"])}) == 4
    # The same place, another count of turns or of actions.
    for other in (["Left", "Right"], ["Right || Left"]):
        assert taken(actions=other).layers[-1].state.episode.state == taken().layers[-1].state.episode.state
        assert taken(actions=other) != taken(actions=[""])
    env = gym.wrappers.TimeLimit(Dice(), 5)
    env.reset(seed=1)
    before = snapshot(env)
    assert repr(before).startswith("Snapshot(TimeLimit < Dice, digest=")
    env.unwrapped.np_random.random()
    assert snapshot(env) != before


def test_a_stream_that_was_only_seeded_is_equal_to_one_that_was_opened():
    env = Dice()
    env.reset(seed=1)
    env.restore(env.snapshot(), seed=5)
    seeded = snapshot(env)
    assert env.np_random is not None
    opened = snapshot(env)
    assert type(seeded.layers[-1].state.position) is not type(opened.layers[-1].state.position)
    assert seeded == opened


def test_a_snapshot_equals_nothing_else_and_cannot_be_changed():
    assert taken() != taken().digest
    assert taken() != None  # noqa: E711
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
    assert (twin, hash(twin), twin.to_bytes()) == (snap, hash(snap), snap.to_bytes())
    assert repr(twin) == repr(snap)
    env = Walk()
    restore(env, twin)
    assert snapshot(env) == snap


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "wanted the bytes of"), (lambda data: data[:5], "wanted the bytes of"),
        (lambda data: b"PK" + data[2:], "wanted the bytes of"), (lambda data: data[:20], "cut short"),
        (lambda data: data[:-1], "damaged"), (lambda data: data + b"x", "damaged"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "damaged"),
        (lambda data: MAGIC + bytes([VERSION + 1]) + data[9:], "wanted snapshot version 1, got 2"),
        (lambda data: bytearray(data), "wanted the bytes of"), (lambda data: data.hex(), "wanted the bytes of"),
    ],
)  # fmt: skip
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
    assert (snap, len({snap, snapshot(env)})) == (snapshot(env), 1)
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
    assert (Bomb.made, snapshot(env)) == ([], before)


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


def test_a_snapshot_of_bytes_knows_its_layers_and_its_origin():
    snap = taken()
    data = f"DATA = {snap.to_bytes().hex()!r}"
    code = f"{data}; from tsr_gym import Snapshot; print(Snapshot.from_bytes(bytes.fromhex(DATA)).kinds)"
    assert run_python(code).strip() == str(snap.kinds) == "['tests.tsr_gym.testing.worlds:Walk']"
    assert not snap.came_as_bytes
    assert Snapshot.from_bytes(snap.to_bytes()).came_as_bytes
    assert pickle.loads(pickle.dumps(snap)).came_as_bytes


# Computed with `printf '%s' "(7, 'noise', 0, 3)" | b2sum -l 64`: eight bytes, little end first, halved.
GOLDEN = {(7, "noise", 0, 3): int.from_bytes(bytes.fromhex("5a0bd230934056fa"), "little") >> 1}


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_seed_is_the_same_in_every_process(hash_seed):
    code = "from tsr_gym.seeds import derive_seed; print(derive_seed(7, 'noise', 0, 3), derive_seed('ä', b'x'))"
    wanted = [
        GOLDEN[7, "noise", 0, 3],
        int.from_bytes(blake2b("('ä', b'x')".encode(), digest_size=8).digest(), "little") >> 1,
    ]
    assert run_python(code, hash_seed=hash_seed).split() == [str(seed) for seed in wanted]


parts = st.lists(st.integers() | st.text(max_size=5) | st.binary(max_size=5), max_size=4).map(tuple)


@given(parts, parts)
def test_other_parts_give_another_seed(left, right):
    assert (derive_seed(*left) == derive_seed(*right)) == (left == right)
    assert 0 <= derive_seed(*left) < 2**63
    for first, second in (((1, 23), (12, 3)), (("a", "b"), ("ab",)), ((1,), ("1",)), (("x",), (b"x",)), ((), (0,))):
        assert derive_seed(*first) != derive_seed(*second)


@given(parts.filter(len), st.integers())
def test_seeds_by_number_are_those_of_the_parts_and_the_number(parts, number):
    assert numbered_seeds(*parts)(number) == derive_seed(*parts, number)


def test_neighbouring_seeds_are_unrelated():
    # Each of the 63 bits is set in about half of the seeds: four standard deviations of a fair coin.
    seeds = [derive_seed(number) for number in range(1000)]
    counts = [sum(seed >> bit & 1 for seed in seeds) for bit in range(63)]
    assert all(437 <= count <= 563 for count in counts)


KINDS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


def numbers(generator, count=5):
    return generator.random(count).tolist()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_position_continues_any_bit_generator_exactly(kind):
    generator = np.random.Generator(kind(7))
    generator.random(3)
    # Half of a 64-bit draw stays in the generator's buffer: it is part of the position.
    generator.integers(2**31, dtype=np.uint32)
    twin = RandomStream(position=decode(encode(position_of(generator)))).draw()
    halves = [each.integers(2**31, size=3, dtype=np.uint32).tolist() for each in (twin, generator)]
    assert (halves[0], numbers(twin)) == (halves[1], numbers(generator))


def test_positions_are_canonical_and_gymnasiums_and_reading_one_draws_nothing():
    fresh = seeding.np_random(5)[0]
    assert canonical(Seeded(5)) == position_of(fresh)
    assert canonical(position_of(fresh)) == position_of(fresh)
    fresh.random()
    assert canonical(Seeded(5)) != position_of(fresh)
    stream = RandomStream(position=Seeded(1))
    assert stream.position == stream.position == Seeded(1)
    before = stream.draw().random()
    stream.position = Seeded(1)
    assert stream.position == Seeded(1)
    assert stream.draw().random() == before
    stream = RandomStream(position=Seeded(1))
    assert stream.untouched
    stream.draw()
    assert not stream.untouched
    assert isinstance(stream.position, Drawn)
    assert stream.untouched


def test_a_generator_that_was_handed_out_stays_the_streams_own():
    stream = RandomStream(position=Seeded(1))
    held = stream.expose()
    first = stream.position
    held.random()
    assert stream.position != first
    stream.position = first
    assert numbers(held) == numbers(seeding.np_random(1)[0])
    stream.position = Seeded(9)
    assert numbers(held) == numbers(seeding.np_random(9)[0])


def test_other_generators_replace_the_stream_and_positions_are_immutable():
    stream = RandomStream(position=Seeded(1))
    stream.expose()
    assert stream.position
    assert not stream.untouched
    stream = RandomStream(np.random.default_rng(1))
    other = np.random.Generator(np.random.Philox(4))
    stream.position = position_of(other)
    assert numbers(stream.draw()) == numbers(other)
    stream = RandomStream(position=Drawn("Dice", ()))
    with pytest.raises(SnapshotError, match=r"'Dice'; .*PCG64"):
        stream.draw()
    stream = RandomStream()
    assert not stream.seeded
    assert stream.expose() is None
    with pytest.raises(SnapshotError, match="call reset"):
        stream.position  # noqa: B018
    position = position_of(np.random.default_rng(2))
    assert hash(position) == hash(pickle.loads(pickle.dumps(position)))
    with pytest.raises(AttributeError):
        position.state = ()
