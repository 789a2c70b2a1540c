"""Freezing and thawing: values of all types, what they share, their byte form, and refusals."""

import copy
import functools
import math
import pickle
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tsr_gym
from tests.abuse.attacks import forged
from tests.conftest import run_python
from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import plain, play
from tsr_gym import Snapshot, SnapshotError, restore, snapshot
from tsr_gym.codec import decode, encode
from tsr_gym.foreign.attributes import AttributesState, PortableAttributes
from tsr_gym.foreign.freezing import Freezer, Here, Members, OtherArray, Randomness, Reduced, Thing, Uncopyable, kept
from tsr_gym.foreign.objects import is_handle, module_of
from tsr_gym.foreign.thawing import Made, Named, Thawer, frozen, imported, portable, portable_attribute, same
from tsr_gym.snapshots import Layer


@dataclass(frozen=True)
class Key:
    number: int


ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.binary(max_size=4)
)
ARRAYS = st.lists(st.integers(-9, 9), max_size=4).map(np.array)
KEYS = st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))


KEYS |= st.frozensets(st.integers(0, 3), max_size=2) | st.integers().map(Key)
VALUES = st.recursive(
    ATOMS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5))
        | st.sets(KEYS, max_size=3)
        | st.frozensets(KEYS, max_size=3)
        | st.lists(inner, max_size=2).map(lambda items: {Key(1): items})
    ),
    max_leaves=20,
)


def thawed(value):
    return Thawer({}).thawed(value)


@given(VALUES)
def test_a_thawed_value_is_what_a_deep_copy_is(value):
    made = thawed(frozen(value))
    assert pickle.dumps(plain(made)) == pickle.dumps(plain(copy.deepcopy(value)))
    # Not compared with the value: with colliding hashes, any copy of a set may have another order.
    assert same(frozen(made), frozen(copy.deepcopy(value)))


@given(st.lists(VALUES, min_size=1, max_size=3), st.lists(st.integers(0, 30), max_size=6))
def test_what_was_one_object_is_one_object_again(parts, picks):
    pool = [*parts, []]
    for pick in picks:
        pool.append([pool[pick % len(pool)], pool[(pick * 7) % len(pool)]])
    flat, twins = lists_in(pool), lists_in(thawed(frozen(pool)))
    assert [flat.index(item) for item in flat] == [twins.index(item) for item in twins]
    assert not set(flat) & set(twins)


def lists_in(value, identities=None):
    """Return the identities of all lists in a value, in order, with repetitions."""
    identities = [] if identities is None else identities
    if type(value) is list:
        identities.append(id(value))
        if identities.count(id(value)) == 1:
            for item in value:
                lists_in(item, identities)
    return identities


class Single:
    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ([1], (1,)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.array([1, 2]), np.array([1.0, 2.0])), (np.array([1, 2]), np.array([[1, 2]])),
        (np.float32(1), np.float64(1)), (deque([1], maxlen=2), deque([1], maxlen=3)), ({1}, frozenset({1})),
        (Key(1), Key(2)),
    ],
)  # fmt: skip
def test_values_that_python_may_call_equal_are_not_the_same(left, right):
    assert not same(frozen(left), frozen(right))
    assert same(frozen(left), frozen(copy.deepcopy(left)))


def test_not_a_number_is_itself_and_sharing_is_part_of_a_value():
    assert same(frozen([float("nan")]), frozen([float("nan")]))
    row = [0]
    assert not same(frozen([row, row]), frozen([[0], [0]]))
    made = thawed(frozen([{frozenset(): 1, frozenset({2}): {3}}, frozenset(), row, {4}, row, Key(1), row]))
    assert made[2] is made[4] is made[6]
    assert made[0] == {frozenset(): 1, frozenset({2}): {3}}


def test_what_only_refers_to_the_environment_refers_to_the_one_that_is_restored():
    class Owner:
        def go(self):
            return self

    owner, other = Owner(), Owner()
    kept = Freezer({id(owner): Here.ENV}).frozen([owner, {"move": owner.go}])
    made = Thawer({Here.ENV: other}).thawed(kept)
    assert made[0] is other
    assert made[1]["move"]() is other


def test_subclasses_of_containers_keep_their_class_and_their_attributes():
    class Tagged(dict):
        pass

    tagged = Tagged(a=[1])
    tagged.tag = "x"
    counts = defaultdict(list, {"a": [1]})
    ordered = OrderedDict([("b", 1), ("a", 2)])
    made = thawed(frozen([tagged, counts, ordered]))
    assert (type(made[0]), made[0], made[0].tag) == (Tagged, {"a": [1]}, "x")
    assert (made[1].default_factory, dict(made[1])) == (list, {"a": [1]})
    assert list(made[2]) == ["b", "a"]
    made[1]["new"].append(1)
    assert "new" not in counts


def test_an_object_that_copies_itself_does_so_and_finds_the_environment():
    class Tensor:
        def __init__(self, owner):
            self.owner, self.data = owner, [1]

        def __deepcopy__(self, memo):
            made = Tensor(copy.deepcopy(self.owner, memo))
            made.data = list(self.data)
            return made

    class Owner:
        pass

    owner, other = Owner(), Owner()
    tensor = Tensor(owner)
    kept = Freezer({id(owner): Here.ENV}).frozen(tensor)
    tensor.data.append(2)
    made = Thawer({Here.ENV: other}).thawed(kept)
    assert made.owner is other
    assert made.data == [1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (threading.Lock(), "lock"),
        ((number for number in range(3)), "generator"),
        (np.zeros(4)[1:].data, "memoryview"),
        (np.frombuffer(bytearray(b"abcd"), np.uint8), "memory that a memoryview owns"),
        (Single(), "returns itself instead of a copy"),
        (worlds.Resource(), "a Resource frees a resource"),
    ],
)
def test_what_cannot_be_copied_is_refused_by_its_kind(value, why):
    with pytest.raises(Uncopyable, match=why):
        (kept if isinstance(value, worlds.Resource) else frozen)([value])


def test_environments_inside_are_copied():
    inner = gym.make("CartPole-v1").unwrapped
    inner.reset(seed=1)
    made = thawed(frozen({"inner": inner}))["inner"]
    assert made is not inner
    assert np.array_equal(made.state, inner.state)
    assert np.array_equal(made.step(1)[0], inner.step(1)[0])


def test_views_are_kept_as_numbers_and_shared_memory_is_refused():
    whole = np.arange(6)
    with pytest.raises(Uncopyable, match="two arrays share memory"):
        frozen([whole, whole[2:]])
    with pytest.raises(Uncopyable, match="two arrays share memory"):
        frozen([whole[:4], whole[2:]])
    made = thawed(frozen([whole[:3], whole[3:]]))
    assert [part.tolist() for part in made] == [[0, 1, 2], [3, 4, 5]]
    array = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    assert thawed(frozen(array)).strides == array.strides
    assert through_bytes(array).strides == array.strides
    whole = np.arange(6, dtype=np.int8)
    record = kept({"left": whole[:4], "both": (whole[2:], [whole])})
    whole[:] = 0
    parts = Thawer({}).thawed(record)
    assert parts["left"].tolist() == [0, 1, 2, 3]
    assert parts["both"][0].tolist() == [2, 3, 4, 5]
    assert parts["both"][1][0].dtype == np.int8


def counter(start=0, log=None):
    """Return two functions that share a variable, which both change."""
    log = [] if log is None else log

    def up():
        nonlocal start
        start += 1
        log.append(start)
        return start

    def read(again=up):
        return start, list(log), again

    return up, read


def test_functions_remember_what_they_remembered_and_share_what_they_shared():
    up, read = counter()
    up()
    kept = frozen({"up": up, "read": read})
    up()
    for _ in range(2):
        made = thawed(kept)
        assert (made["read"]()[:2], made["up"]()) == ((1, [1]), 2)
        assert made["read"]() == (2, [1, 2], made["up"])
    assert read()[:2] == (2, [1, 2])


def test_functions_and_what_they_know_belong_to_copies():
    def made(held):
        return lambda: held

    assert same(frozen(made([3])), frozen(made([3])))
    assert not same(frozen(made([3])), frozen(made([4])))
    assert not same(frozen(made(3)), frozen(lambda: 3))
    assert frozen(len) is len
    items = [1]
    rng = np.random.default_rng(1)
    made = thawed(frozen([items, items.append, rng, rng.random]))
    made[1](2)
    assert (made[0], items) == ([1, 2], [1])
    assert made[3]() == np.random.default_rng(1).random()
    assert rng.random() == np.random.default_rng(1).random()
    assert frozen(cached) is cached
    with pytest.raises(Uncopyable, match="returns itself instead of a copy"):
        frozen(functools.lru_cache(lambda number: number))

    class Owner:
        pass

    owner, other = Owner(), Owner()

    def countdown(number):
        return owner if number == 0 else countdown(number - 1)

    made = Thawer({Here.ENV: other}).thawed(Freezer({id(owner): Here.ENV}).frozen([countdown]))[0]
    assert made(3) is other
    assert countdown(3) is owner


@functools.lru_cache
def cached(number):
    return number


class Nameless(type):
    """A class without a module, as some extensions make them."""

    @property
    def __module__(cls):
        raise AttributeError("__module__")


def test_a_kind_without_a_module_is_copied_or_refused_like_any_other():
    class Plain(metaclass=Nameless):
        def __init__(self):
            self.steps = [4]

    class RefusesToSay(Plain):
        def __reduce_ex__(self, protocol):
            raise TypeError("no")

    with pytest.raises(AttributeError):
        Plain.__module__  # noqa: B018
    assert module_of(Plain) == ""
    assert not is_handle(Plain())
    plain = Plain()
    assert Thawer({}).thawed(frozen([plain]))[0].steps == [4]
    with pytest.raises(Uncopyable, match=r"a test_.*RefusesToSay cannot be copied \(no\)"):
        frozen(RefusesToSay())
    with pytest.raises(SnapshotError, match="another process cannot find by its name"):
        portable(frozen(plain))


def test_a_tensor_is_kept_as_numbers_and_given_as_a_tensor():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.5, 2.0], requires_grad=True)
    record = kept([tensor, tensor])
    assert same(record, kept([tensor.detach().clone(), tensor]))
    tensor, other = Thawer({}).thawed(record)
    assert isinstance(tensor, torch.Tensor)
    tensor[0] = 0
    assert other.tolist() == [1.5, 2.0]
    assert Thawer({}).thawed(record)[0].tolist() == [1.5, 2.0]


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
        {3, 1}, bytearray(b"ab"), 1 - 2j, range(1, 9, 2), slice(1, None), deque([[1]], maxlen=3), defaultdict(int, a=1),
        OrderedDict(b=1, a=2), np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), np.array([None, (1, [2])], dtype=object),
        np.random.default_rng(1), np.random.Generator(np.random.MT19937(1)), np.random.RandomState(1),
        np.random.PCG64(1), Point(1.5, [2]), {(1, 2): Point(0.0, [])}, np.dtype("<f4"), [np.float32, int],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_environments_hold_comes_out_of_bytes_as_it_went_in(value):
    assert same(through_bytes(value), frozen(value))


def test_sharing_goes_through_bytes_and_only_own_packages_are_found():
    row = [0]
    assert same(through_bytes([row, row, {"again": row}]), frozen([row, row, {"again": row}]))
    assert through_bytes([Point]) == [Point]
    for packages in (frozenset(), frozenset({"os"})):
        with pytest.raises(SnapshotError, match=r"tests\.tsr_gym\.foreign\.test_freezing\.Point, which is not in"):
            through_bytes(Point(1.0, []), packages)
    assert through_bytes([int, float, defaultdict], frozenset()) == [int, float, defaultdict]


def test_functions_go_through_bytes_with_what_they_hold_and_code_and_modules_do_not():
    def make(held):
        return lambda: held

    through = decode(encode(portable_attribute(frozen(make([1, 2])))))
    assert Thawer({}).thawed(imported(through, HERE, make(None)))() == [1, 2]
    with pytest.raises(SnapshotError, match="every reset makes"):
        imported(through, HERE, len)
    name = portable_attribute(frozen(math))
    assert imported(name, HERE, math) is math
    with pytest.raises(SnapshotError, match="refused"):
        imported(name, HERE, None)

    def make():
        return lambda: None

    first, other = make(), make()
    name = portable_attribute(frozen(first))
    assert imported(name, HERE, other) is other
    with pytest.raises(SnapshotError, match="every reset makes"):
        imported(name, HERE, None)
    with pytest.raises(SnapshotError, match="which another process cannot find by its name"):
        portable(frozen([first]))


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
        {"__class__": Named("tests.tsr_gym.foreign.worlds", "Locked")}, {"action_space": 3},
        {"tool": Named("subprocess", "Popen")}, {"tool": Named("os", "system")},
        {"tool": Thing(Named("subprocess", "Popen"), {})},
        {"tool": Thing(Named("tests.tsr_gym.foreign.worlds", "Resource"), {"__class__": 1})},
        {"tool": Thing(Named("tests.tsr_gym.foreign.worlds", "Mode"), {})},
        {"tool": Reduced(Named("tests.conftest", "run_python"), ("1",), None, None, None)}, {"tool": Made("eval", "1")},
        {"tool": Members(Named("tests.conftest", "run_python"), ("1",))}, {"tool": Randomness("Generator", 3)},
        {"tool": OtherArray("os", np.zeros(2))}, {"step": 3}, {"unwrapped": 3},
        {"begin": Named("tests.tsr_gym.foreign.worlds", "Body")}, {"tool": Randomness("Loaded", 3)},
    ],
    ids=lambda attributes: str(attributes)[:40],
)  # fmt: skip
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


def test_captured_states_never_come_from_bytes_and_harmless_ones_are_accepted():
    env = worlds.Plain()
    env.reset(seed=1)
    before = snapshot(env)
    (layer,) = before.layers
    state = AttributesState(layer.state.settings, {"position": Thing(3, {"__class__": 4})}, layer.state.position)
    with pytest.raises(SnapshotError, match="not a snapshot"):
        restore(env, forged((layer._replace(state=state),)))
    assert snapshot(env) == before
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
    if prepare:
        with pytest.raises(SnapshotError, match=r"pure.*ManyKinds\.begin.*call reset\(\) first"):
            restore(worlds.ManyKinds(), Snapshot.from_bytes(snap.to_bytes()))
