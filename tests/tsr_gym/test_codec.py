"""The codec: every value that can be written can be read, equal values give equal bytes, and damage is refused."""

import struct
import sys
import tracemalloc
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import run_python
from tsr_gym import SnapshotError
from tsr_gym.codec import MAX_DEPTH, MAX_MEMORY, MEMORY_PER_BYTE, decode, digest, encode, mutable_part, outline
from tsr_gym.random_stream import Drawn


class Point(NamedTuple):
    x: int
    y: object = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    name: str
    size: tuple = (4, 4)


@dataclass(frozen=True)
class Derived:
    base: int

    def __post_init__(self):
        if self.base < 0:
            raise ZeroDivisionError("a constructor may raise anything")


class Colour(Enum):
    RED = "r"


class Level(IntEnum):
    HARD = 3


@dataclass
class Open:
    x: int


class Heir(Derived):
    pass


atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(atoms.filter(lambda key: key is not None), inner, max_size=3)
        | st.frozensets(atoms, max_size=4)
        | st.builds(Point, st.integers(), inner)
        | st.lists(inner, max_size=3).map(lambda items: deque(items, 5))
    ),
    max_leaves=12,
)


def types_in(value):
    if isinstance(value, dict):
        return [(types_in(key), types_in(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [types_in(item) for item in value]
    return type(value)


@given(values)
def test_a_value_comes_back_from_its_bytes_with_its_types(value):
    again = decode(encode(value))
    assert (again, types_in(again)) == (value, types_in(value))
    assert encode(again) == encode(value)


@pytest.mark.parametrize(
    "value",
    [
        *(Settings(name="a", size=(1, 2)), Derived(3), Colour.RED, Level.HARD, Point(1, Point(2, (Point(3),)))),
        *(
            2**200, -(2**63), "\ud800 lone", np.float32(1.5), np.int64(-7), np.bool_(True), np.str_("höhle"),
            np.str_(""),
        ),
    ],
    ids=repr,
)  # fmt: skip
def test_records_enums_and_numpy_scalars_come_back_as_what_they_were(value):
    again = decode(encode(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::-2], np.array(3.5), np.zeros((0, 3), dtype=np.float32),
        *(np.array(["a", "bcd"]), np.array([True, False]), np.array(["2024-01-01"], dtype="datetime64[D]")),
        np.arange(3, dtype=">i4"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)  # fmt: skip
def test_an_array_comes_back_equal_and_read_only(array):
    again = decode(encode(array))
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert np.array_equal(again, array)
    with pytest.raises(ValueError, match="read-only"):
        again[...] = array


def test_bytes_distinguish_what_compares_equal_and_sets_have_one_order():
    for left, right in ((1, True), (1, 1.0), (0.0, -0.0), ((1,), [1]), ({1: 2, 3: 4}, {3: 4, 1: 2}), ("a", b"a")):
        assert encode(left) != encode(right)
    assert encode(np.int64(1)) != encode(np.int32(1))
    for number in (-0.0, float("inf"), float("-inf"), float("nan"), 5e-324):
        assert struct.pack("<d", decode(encode(number))) == struct.pack("<d", number)
    assert decode(encode(deque([1, 2], maxlen=2))).maxlen == 2
    assert decode(encode(deque())).maxlen is None
    words = [f"word {number}" for number in range(40)]
    assert encode(frozenset(words)) == encode(frozenset(reversed(words)))
    words = ["ab", "bc", "cd", "de", "ef"]
    code = f"from tsr_gym.codec import digest; print(digest(frozenset({words})))"
    assert run_python(code, hash_seed="7").strip() == digest(frozenset(words))


@pytest.mark.parametrize("wrap", [tuple, list, Point, frozenset, deque], ids=lambda wrap: wrap.__name__)
def test_every_depth_that_can_be_written_can_be_read(wrap):
    value = 1
    for _ in range(MAX_DEPTH + 2):
        value = wrap(value) if wrap is Point else wrap((value,))
        try:
            data = encode(value)
        except SnapshotError:
            break
        assert decode(data) == value
    else:
        pytest.fail("a value that is nested too deep was written")
    with pytest.raises(SnapshotError, match="flatten the state"):
        encode(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        *((object(), "object"), ({1, 2}, "set"), (Open(1), "Open"), (Heir(1), "Heir"), (lambda: 0, "function")),
        *((np.random.default_rng(0), "Generator"), (bytearray(b"x"), "bytearray"), (1j, "complex"), (Point, "type")),
        (np.array([object()]), "array of objects or records"),
        (np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]), "array of objects or records"),
        (np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])[0], ""),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_has_no_plain_form_is_refused_by_name(value, name):
    with pytest.raises(SnapshotError, match=name or None):
        encode((1, value))


def record_bytes(module, name, fields, parts):
    header = "\0".join((module, name, *fields)).encode()
    return b"r" + struct.pack("<I", len(header)) + header + encode(parts)


def test_decoding_never_imports_and_calls_only_records():
    for record, message in (
        (("antigravity", "Anything", (), ()), "import antigravity"),
        (("subprocess", "Popen", ("args",), (("true",),)), "neither a frozen dataclass nor a NamedTuple"),
        (("os", "system", ("command",), ("true",)), "neither a frozen dataclass nor a NamedTuple"),
        ((__name__, "Point", ("x", "z"), (1, 2)), "another version"),
        ((__name__, "Derived", ("base",), (-1,)), "a constructor may raise anything"),
        *(((__name__, "Point", ("x", "y"), parts), "a tuple, got a") for parts in ("ab", [1, 2], {"x": 1, "y": 2}, 7)),
    ):
        with pytest.raises(SnapshotError, match=message):
            decode(record_bytes(*record))
    blob = f"{__name__}\0Point\0x".encode()
    with pytest.raises(SnapshotError, match="is not an enum"):
        decode(b"e" + struct.pack("<I", len(blob)) + blob)
    with pytest.raises(SnapshotError, match="hold Python objects"):
        decode(b"a" + struct.pack("<I", 2) + b"|O" + encode((1,)) + encode(b"12345678"))


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.binary(max_size=60),
)
def test_altered_and_arbitrary_bytes_give_a_value_or_a_snapshot_error_and_nothing_else(changes, other):
    data = bytearray(EXAMPLE)
    for place, byte in changes:
        data[place % len(data)] = byte
    with suppress(SnapshotError):
        decode(bytes(data))
    with suppress(SnapshotError):
        encode(decode(other))


def test_every_prefix_is_refused():
    for size in range(len(EXAMPLE)):
        with pytest.raises(SnapshotError):
            decode(EXAMPLE[:size])


class Lazy(ModuleType):
    """A module with `__getattr__`, as modules with lazy imports have it."""

    asked = ()

    def __getattr__(self, name):
        self.asked += (name,)
        return Point


@pytest.fixture
def library(monkeypatch):
    """Return an imported library with a class that records when it is made."""
    module = Lazy("somebodys_library")
    made = []

    @dataclass(frozen=True)
    class Bomb:
        fuse: int

        def __post_init__(self):
            made.append(self)

    Bomb.__module__, Bomb.__qualname__ = "somebodys_library", "Bomb"
    module.Bomb, module.Alias, module.made = Bomb, Point, made
    monkeypatch.setitem(sys.modules, "somebodys_library", module)
    return module


def test_a_module_is_never_asked_for_what_it_does_not_hold(library):
    for tag, header in ((b"r", "somebodys_library\0Point\0x\0y"), (b"e", "somebodys_library\0Colour\0RED")):
        blob = header.encode()
        with pytest.raises(SnapshotError, match="somebodys_library"):
            decode(tag + struct.pack("<I", len(blob)) + blob + encode((1, 2)) * (tag == b"r"))
    assert library.asked == ()


def test_a_class_has_one_name(library):
    # The first is a name under which it was imported; the others are not names of classes.
    for module, name in (
        ("tests.tsr_gym.test_codec", "ModuleType"),
        (__name__, "Point.x"),
        (__name__, "Point.__doc__"),
    ):
        with pytest.raises(SnapshotError):
            decode(record_bytes(module, name, ("x", "y"), (1, 2)))
    with pytest.raises(SnapshotError, match="neither a frozen dataclass nor a NamedTuple"):
        decode(record_bytes("somebodys_library", "Alias", ("x", "y"), (1, 2)))


def test_only_classes_of_the_packages_that_are_allowed_are_made(library):
    data = record_bytes("somebodys_library", "Bomb", ("fuse",), (3,))
    for packages in (set(), {"tests"}, {"somebodys"}):
        with pytest.raises(SnapshotError, match="Bomb, which is not in the environment's own packages"):
            decode(data, packages)
    assert library.made == []
    assert [decode(data, {"somebodys_library"})] == library.made
    assert decode(encode(Drawn("PCG64", ())), set()) == Drawn("PCG64", ())
    assert decode(encode((1, np.float32(2), np.arange(3), "a")), set())[:2] == (1, 2.0)


def test_an_outline_makes_nothing_and_shows_what_is_there(library):
    bomb = record_bytes("somebodys_library", "Bomb", ("fuse",), (3,))
    assert outline(b"t" + struct.pack("<I", 2) + bomb + encode({"a": 1})) == ((3,), [("a", 1)])
    assert outline(record_bytes("nowhere", "Nothing", (), ())) == ()
    assert outline(encode(frozenset({Colour.RED, Level.HARD}))) == [None, None]
    assert library.made == []


NOTHING = encode(None)


@pytest.mark.parametrize(
    "piece",
    [encode(deque()), encode(deque([1])), encode({True: None}), encode(frozenset({None})), encode([]), NOTHING],
    ids=["deques", "deques of one", "dictionaries", "sets", "lists", "None"],
)
def test_memory_is_in_proportion_to_the_bytes(piece):
    count = 300_000 // len(piece)
    data = b"t" + struct.pack("<I", count) + piece * count
    tracemalloc.start()
    with suppress(SnapshotError):
        decode(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < MAX_MEMORY + (MEMORY_PER_BYTE + 8) * len(data)


def test_sizes_names_and_ends_that_do_not_fit_are_refused():
    for name in (b"i1," * 1000, b"(1000000,)i1", b"|V8", b"<U2,O", b"float64"):
        with pytest.raises(SnapshotError, match="hold Python objects or records"):
            decode(b"a" + struct.pack("<I", len(name)) + name + encode((1,)) + encode(b"12345678"))
    with pytest.raises(SnapshotError, match="wanted 1 bytes, got 2"):
        decode(b"NN")
    with pytest.raises(SnapshotError, match="cut short"):
        decode(b"s" + struct.pack("<I", 2**32 - 1) + b"x")
    with pytest.raises(SnapshotError, match="cut short"):
        decode(b"t" + struct.pack("<I", 2**32 - 1) + b"N")
    many = tuple(deque() for _ in range(10_000))
    with pytest.raises(SnapshotError, match="bytes of memory"):
        encode(many)
    assert decode(encode(many[:3000])) == many[:3000]
    # Many bytes that look like tags are not tags.
    words = b"q" * 100_000
    assert decode(encode(words)) == words


COMPARED = []


class Sticky(NamedTuple):
    """Counts comparisons with other values, all of which have its hash."""

    number: int

    def __hash__(self):
        return 1

    def __eq__(self, other):
        COMPARED.append(other)
        return tuple(self) == tuple(other)


@pytest.mark.parametrize("tag", [b"z", b"d"])
def test_keys_that_share_a_hash_do_not_take_quadratic_time(tag):
    keys = [record_bytes(__name__, "Sticky", ("number",), (number,)) for number in range(3000)]
    data = tag + struct.pack("<I", len(keys)) + b"".join(key + NOTHING * (tag == b"d") for key in keys)
    COMPARED.clear()
    with pytest.raises(SnapshotError, match="keys have the same hash"):
        decode(data)
    assert COMPARED == []
    prime = sys.hash_info.modulus
    numbers = b"z" + struct.pack("<I", 1000) + b"".join(encode(1 + number * prime) for number in range(1000))
    with pytest.raises(SnapshotError, match="keys have the same hash"):
        decode(numbers)


EXAMPLE = encode(
    (Point(3, "text"), Settings(name="s"), np.arange(4), np.int64(2), {"a": [1.5, None]}, frozenset({1, 2}), Colour.RED)
)


def test_the_bytes_of_a_value_never_change():
    # Golden: snapshots on disk must stay readable, and digests comparable, across versions.
    value = ("turn", 3, -0.1, None, True, b"\x00", (), np.uint8(7), frozenset({2, 1}))
    assert encode(value).hex() == (
        "7409000000"  # a tuple of nine
        "73040000007475726e"  # "turn"
        "690100000003"  # 3
        "669a9999999999b9bf"  # -0.1
        "4e"  # None
        "54"  # True
        "620100000000"  # one byte, zero
        "7400000000"  # an empty tuple
        "67050000007c75310007"  # the numpy scalar |u1, 7
        "7a02000000690100000001690100000002"  # a set, its members in the order of their bytes
    )


IMMUTABLE = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3), st.sampled_from([Colour.RED, np.float32(2), Point])),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(tuple), st.builds(Point, parts, parts), st.builds(Settings, name=parts)
    ),
)
LEAVES = [[], {}, set(), deque(), bytearray(), np.zeros(1), Open(1), np.random.default_rng(1)]


@given(IMMUTABLE, st.lists(st.sampled_from([Point, Settings, tuple]), max_size=4), st.sampled_from(LEAVES))
def test_the_first_part_that_can_be_changed_is_named_however_deep_it_is(value, nest, leaf):
    assert mutable_part(value) is None
    path, parts = "", leaf
    for wrap in nest:
        made = Settings(name=parts) if wrap is Settings else Point(value, parts) if wrap is Point else (parts, [])
        path, parts = {Point: ".y", tuple: "[0]"}.get(wrap, ".name") + path, made
    assert mutable_part(parts)[0] == path
