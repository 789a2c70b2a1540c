"""Write immutable values as bytes and read them back, without pickle.

Decoding builds plain values, frozen dataclasses, NamedTuples and enum members of modules that are already imported and
of packages that the caller allows. It never imports a module, calls nothing else, and refuses what it does not know.
Memory and time are proportional to the number of bytes. Equal values of equal types give equal bytes; dictionaries keep
their order, which is part of the bytes.
"""

import re
import struct
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.errors import SnapshotError

OURS = frozenset({"tsr_gym", "tsr_gym_envs"})


def packages_of(cls: type) -> frozenset[str]:
    """Return the packages of a class and of its base classes, without Python's and Gymnasium's."""
    packages = {str(base.__module__).partition(".")[0] for base in cls.__mro__}
    return frozenset(packages - sys.stdlib_module_names - {"gymnasium"} | {str(cls.__module__).partition(".")[0]})


def find(module: object, name: object) -> Any:
    """Return the object that an imported module has under a name, which may be dotted; None if it does not exist.

    The dictionaries are read directly, because names come from bytes: a module or class with `__getattr__` could run
    code when it is asked for an attribute.
    """
    item: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) else ("",):
        if isinstance(item, ModuleType):
            item = object.__getattribute__(item, "__dict__").get(part)
        else:
            item = type.__getattribute__(item, "__dict__").get(part) if isinstance(item, type) else None
        if isinstance(item, staticmethod):
            item = item.__func__
    return item


def find_class(module: str, name: str, packages: Set[str] | None) -> Any:
    """Return a class of an imported module by its own module and name; None if it does not exist.

    Args:
        module: The module.
        name: The class, dotted if it is defined in another one.
        packages: The packages that the module may belong to, in addition to ours; None for any.

    Raises:
        SnapshotError: The module is not imported, or of another package.
    """
    if module not in sys.modules:
        raise SnapshotError(f"the value holds a {module}.{name}: import {module} or make its environment first")
    if packages is not None and module.partition(".")[0] not in packages | OURS:
        raise SnapshotError(
            f"the value holds a {module}.{name}, which is not in the environment's own packages "
            f"{sorted(packages | OURS)}: refused"
        )
    cls = find(module, name)
    # Only the class's own name counts, not an alias in a module that imports it.
    return cls if isinstance(cls, type) and (cls.__module__, cls.__qualname__) == (module, name) else None


class Record(NamedTuple):
    """How a dataclass or NamedTuple is split into parts and made from them."""

    module: str
    name: str
    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    make: Callable[[tuple[Any, ...]], Any]


@lru_cache(maxsize=512)
def record_of(cls: Any) -> Record | None:
    """Return how objects of a class are split; None if it is neither a frozen dataclass nor a NamedTuple."""
    module, qualname = cls.__module__, cls.__qualname__
    if issubclass(cls, tuple) and "_fields" in vars(cls):
        names = tuple(vars(cls)["_fields"])
        return Record(module, qualname, names, tuple, lambda parts: cls(*parts))
    # A class that only inherits from a dataclass may have more attributes than the fields, so it does not count.
    if "__dataclass_params__" in vars(cls) and vars(cls)["__dataclass_params__"].frozen:
        names = tuple(item.name for item in fields(cls) if item.init)
        getters = [attrgetter(name) for name in names]
        return Record(
            module,
            qualname,
            names,
            lambda value: tuple(get(value) for get in getters),
            # By name, because fields may be keyword-only.
            lambda parts: cls(**dict(zip(names, parts, strict=True))),
        )
    return None


_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_MUTABLE: tuple[Any, ...] = (list, dict, set, deque, bytearray, SimpleNamespace, *_GENERATORS)


def mutable_part(value: Any) -> tuple[str, str] | None:
    """Return path and description of the first part of a value that can be changed in place; None if there is none."""
    cls: Any = type(value)
    if isinstance(value, tuple | frozenset):
        if _IMMUTABLE.issuperset(map(type, value)):
            return None
        names = [f".{name}" for name in vars(cls).get("_fields", ())]
        return _first_mutable(names or [f"[{number}]" for number in range(len(value))], value)
    if isinstance(value, _MUTABLE) or cls.__module__ == "random":
        return "", f"a {cls.__qualname__}"
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            return "", "an array that is not read-only"
        return mutable_part(tuple(value.ravel().tolist())) if value.dtype == object else None
    if isinstance(value, Enum | type | ModuleType | FunctionType) or not is_made_in_python(cls):
        return None
    if is_dataclass(value) and cls.__dataclass_params__.frozen:
        names = [item.name for item in fields(value)]
        return _first_mutable([f".{name}" for name in names], [attrgetter(name)(value) for name in names])
    sets_freely = cls.__setattr__ is object.__setattr__
    return ("", f"a {cls.__qualname__} with attributes that can be set") if sets_freely else None


def is_made_in_python(cls: type) -> bool:
    """Return whether a class is written in Python, outside of the standard library."""
    return bool(cls.__flags__ & _HEAP_TYPE) and cls.__module__.partition(".")[0] not in sys.stdlib_module_names


# CPython sets this flag for classes that are made at run time, which includes every class written in Python.
_HEAP_TYPE = 1 << 9
_IMMUTABLE = frozenset({type(None), bool, int, float, str, bytes})


def _first_mutable(names: Sequence[str], parts: Iterable[Any]) -> tuple[str, str] | None:
    for name, part in zip(names, parts, strict=True):
        if type(part) not in _IMMUTABLE and (inner := mutable_part(part)):
            return name + inner[0], inner[1]
    return None


MAX_DEPTH = 64
# The most memory that decoding may take: a fixed number of bytes, plus a multiple of the length of the data.
MAX_MEMORY, MEMORY_PER_BYTE = 1 << 22, 32
# Keys with equal hashes take quadratic time. More of them do not occur by accident, only in an attack.
MAX_EQUAL_HASHES = 256
MAX_HEADER = 1 << 16
_DTYPE = re.compile(r"[<>|=][biufcSUmM]\d{1,10}(\[\w{1,20}\])?")


def encode(value: object) -> bytes:
    """Return the canonical bytes of a value.

    Raises:
        SnapshotError: The value contains an object without a pickle-free form, such as a function or a mutable object.

    >>> decode(encode(("turn", 3, -0.1, None))) == ("turn", 3, -0.1, None)
    True
    """
    out = bytearray()
    _write(out, value, 0)
    data = bytes(out)
    # A value that can be written must also be readable, within the memory limit of the reader. The cheap bounds below
    # prove it for almost every value; only the others are read for a check.
    allowed = _allowed_memory(len(data))
    if len(data) * _MOST_MEMORY > allowed and sum(data.count(tag) * most for tag, most in _FILLED.items()) > allowed:
        outline(data)
    return data


def decode(data: bytes, packages: Set[str] | None = None) -> Any:
    """Return the value whose canonical bytes are given.

    Args:
        data: A result of `encode`.
        packages: The packages whose classes the bytes may name, in addition to ours (`packages_of`). None allows all
            that are imported; use it only for bytes that this process wrote.

    Raises:
        SnapshotError: The bytes are damaged, or name a class that is not imported or not allowed.
    """
    return _Reader(memoryview(data), packages).all()


def outline(data: bytes) -> Any:
    """Return the value with records as tuples of their parts. No class is looked up, and nothing is hashed.

    Sets and dictionaries become lists, and enum members become None.

    Raises:
        SnapshotError: The bytes are damaged.
    """
    return _Reader(memoryview(data), None, makes=False).all()


def digest(value: object) -> str:
    """Return a 128-bit hexadecimal digest of a value's canonical bytes."""
    return blake2b(encode(value), digest_size=16).hexdigest()


def _length(out: bytearray, tag: bytes, size: int) -> None:
    out += tag
    out += _SIZE(size)


def _blob(out: bytearray, tag: bytes, data: bytes) -> None:
    out += tag
    out += _SIZE(len(data))
    out += data


_SIZE = struct.Struct("<I").pack


def _write(out: bytearray, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise SnapshotError(f"wanted a value nested at most {MAX_DEPTH} deep: flatten the state")
    cls: Any = type(value)
    if writer := _WRITERS.get(cls):
        writer(out, value, depth + 1)
    elif isinstance(value, Enum):
        _blob(out, b"e", f"{cls.__module__}\0{cls.__qualname__}\0{value.name}".encode())
    elif isinstance(value, np.generic) and value.dtype.kind not in "OV":
        _blob(out, b"g", value.dtype.str.encode() + b"\0" + value.tobytes())
    elif record := record_of(cls):
        out += _header(cls)
        # The depth counts as in the reader, so that a value that can be written can be read.
        _items(out, b"t", record.read(value), depth + 2)
    else:
        raise SnapshotError(
            f"a {cls.__module__}.{cls.__qualname__} has no pickle-free form; wanted numbers, text, bytes, tuples, "
            "frozensets, arrays, enum members, frozen dataclasses or NamedTuples: keep other objects out of the state"
        )


@lru_cache(maxsize=512)
def _header(cls: type) -> bytes:
    """Return the bytes before the parts of a record."""
    record, out = record_of(cls), bytearray()
    assert record is not None
    _blob(out, b"r", "\0".join((record.module, record.name, *record.names)).encode())
    return bytes(out)


def _items(out: bytearray, tag: bytes, items: Any, depth: int) -> None:
    _length(out, tag, len(items))
    for item in items:
        _write(out, item, depth)


# Counters and sizes come again in every snapshot. Their bytes are kept.
@lru_cache(maxsize=1024)
def _int_bytes(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"i" + _SIZE(len(data)) + data


def _write_int(out: bytearray, value: int, depth: int) -> None:
    out += _int_bytes(value)


class Constant:
    """A value that is written again and again: its bytes are kept, unless it can be changed in place."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    # By identity: equal values of different types, such as 1 and True, have different bytes.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _write_constant(out: bytearray, constant: Constant, depth: int) -> None:
    data = _constant_bytes(constant, depth - 1)
    if data is None:
        _write(out, constant.value, depth - 1)
    else:
        out += data


@lru_cache(maxsize=32)
def _constant_bytes(constant: Constant, depth: int) -> bytes | None:
    if mutable_part(constant.value):
        return None
    out = bytearray()
    _write(out, constant.value, depth)
    return bytes(out)


def _write_dict(out: bytearray, value: dict[Any, Any], depth: int) -> None:
    _length(out, b"d", len(value))
    for key, item in value.items():
        _write(out, key, depth)
        _write(out, item, depth)


def _write_frozenset(out: bytearray, value: frozenset[Any], depth: int) -> None:
    _length(out, b"z", len(value))
    parts = []
    for item in value:
        part = bytearray()
        _write(part, item, depth)
        parts.append(bytes(part))
    # Sorted by their bytes, because the order of a set depends on hashes and on its history.
    out += b"".join(sorted(parts))


def _write_array(out: bytearray, value: np.ndarray[Any, Any], depth: int) -> None:
    if value.dtype.kind in "OV":
        raise SnapshotError("an array of objects or records has no pickle-free form: use numeric arrays or tuples")
    _blob(out, b"a", value.dtype.str.encode())
    _items(out, b"t", value.shape, depth + 1)
    # In C order, so that equal arrays with different memory layouts give equal bytes.
    _blob(out, b"b", np.ascontiguousarray(value).tobytes())


def _write_deque(out: bytearray, value: deque[Any], depth: int) -> None:
    out += b"q"
    _write(out, value.maxlen, depth)
    _items(out, b"t", value, depth + 1)


_WRITERS: dict[type, Callable[[bytearray, Any, int], None]] = {
    type(None): lambda out, value, depth: out.extend(b"N"),
    bool: lambda out, value, depth: out.extend(b"T" if value else b"F"),
    int: _write_int,
    float: lambda out, value, depth: out.extend(b"f" + struct.pack("<d", value)),
    str: lambda out, value, depth: _blob(out, b"s", value.encode("utf-8", "surrogatepass")),
    bytes: lambda out, value, depth: _blob(out, b"b", value),
    tuple: lambda out, value, depth: _items(out, b"t", value, depth),
    list: lambda out, value, depth: _items(out, b"l", value, depth),
    dict: _write_dict,
    frozenset: _write_frozenset,
    np.ndarray: _write_array,
    deque: _write_deque,
    Constant: _write_constant,
}


def _allowed_memory(size: int) -> int:
    return MAX_MEMORY + MEMORY_PER_BYTE * size


class _Reader:
    """A cursor over canonical bytes. It never reads past the end, nor allocates more than the bytes can justify.

    Attributes:
        packages: The packages whose classes may be named in addition to ours; None for all.
        makes: Whether records and enum members are made.
        memory: The bytes of memory that may still be allocated.
    """

    def __init__(self, data: memoryview, packages: Set[str] | None, *, makes: bool = True) -> None:
        self.data = data
        self.position = 0
        self.packages = packages
        self.makes = makes
        self.memory = _allowed_memory(len(data))

    def all(self) -> Any:
        value = self.value(0)
        if self.position != len(self.data):
            raise SnapshotError(f"wanted {self.position} bytes, got {len(self.data)}: the value is damaged")
        return value

    def take(self, size: int) -> bytes:
        # Checked before the slice, so that a huge size in damaged bytes allocates nothing.
        end = self.position + size
        if end > len(self.data):
            raise SnapshotError(
                f"wanted {size} bytes at {self.position}, got {len(self.data) - self.position}: cut short"
            )
        self.position, start = end, self.position
        return bytes(self.data[start:end])

    def size(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def blob(self) -> bytes:
        return self.take(self.size())

    def spend(self, size: int) -> None:
        self.memory -= size
        if self.memory < 0:
            raise SnapshotError(
                f"the containers in these {len(self.data)} bytes would take more than "
                f"{_allowed_memory(len(self.data))} bytes of memory: refused"
            )

    def header(self) -> list[str]:
        names = self.blob()
        if len(names) > MAX_HEADER:
            raise SnapshotError(f"wanted at most {MAX_HEADER} bytes of names, got {len(names)}: the value is damaged")
        return names.decode().split("\0")

    def items(self, depth: int) -> list[Any]:
        return [self.value(depth) for _ in range(self.size())]

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise SnapshotError(f"wanted a value nested at most {MAX_DEPTH} deep: the value is damaged")
        tag = self.take(1)
        reader = _READERS.get(tag)
        if reader is None:
            raise SnapshotError(f"unknown tag {tag!r} at byte {self.position - 1}: the value is damaged")
        self.spend(_MEMORY[tag])
        try:
            return reader(self, depth + 1)
        except SnapshotError:
            raise
        # Numpy and constructors of foreign classes are called here and may raise any exception.
        except Exception as error:
            raise SnapshotError(
                f"value at byte {self.position} cannot be read ({error}): damaged or of another version"
            ) from error


def _read_record(reader: _Reader, depth: int) -> Any:
    module, name, *names = reader.header()
    parts = reader.value(depth)
    if type(parts) is not tuple:
        raise SnapshotError(f"wanted the parts of {module}.{name} as a tuple, got a {type(parts).__name__}: damaged")
    if not reader.makes:
        return parts
    # The class is looked up last, after its parts were read within the limits of memory and depth.
    cls = find_class(module, name, reader.packages)
    record = None if cls is None else record_of(cls)
    if record is None:
        raise SnapshotError(f"{module}.{name} is neither a frozen dataclass nor a NamedTuple: refused")
    # Other fields mean another version of the class; filling them by position could silently exchange two values.
    if record.names != tuple(names):
        raise SnapshotError(f"{module}.{name} has the fields {record.names}, the value {tuple(names)}: another version")
    return record.make(parts)


def _read_enum(reader: _Reader, depth: int) -> Any:
    module, name, member = reader.header()
    if not reader.makes:
        return None
    cls = find_class(module, name, reader.packages)
    if cls is None or not issubclass(cls, Enum):
        raise SnapshotError(f"{module}.{name} is not an enum: refused")
    return cls[member]


def _read_dict(reader: _Reader, depth: int) -> Any:
    items = [(reader.value(depth), reader.value(depth)) for _ in range(reader.size())]
    return dict(items) if _is_table(reader, b"d", [key for key, _ in items]) else items


def _read_frozenset(reader: _Reader, depth: int) -> Any:
    members = reader.items(depth)
    if not _is_table(reader, b"z", members):
        return members
    return frozenset(members) if members else _NOTHING


def _is_table(reader: _Reader, tag: bytes, keys: list[Any]) -> bool:
    """Return whether to make a set or dictionary of these keys.

    Raises:
        SnapshotError: It would take too much memory or quadratic time.
    """
    if keys:
        reader.spend(_FILLED[tag] - _MEMORY[tag])
    if not reader.makes:
        return False
    if len(keys) > MAX_EQUAL_HASHES and max(Counter(map(hash, keys)).values()) > MAX_EQUAL_HASHES:
        raise SnapshotError(f"more than {MAX_EQUAL_HASHES} of {len(keys)} keys have the same hash: refused")
    return True


def _read_scalar(reader: _Reader, depth: int) -> Any:
    name, _, data = reader.blob().partition(b"\0")
    dtype = _plain_dtype(name)
    # Numpy's empty string has no bytes at all.
    return np.frombuffer(data, dtype=dtype, count=1)[0] if dtype.itemsize else dtype.type()


def _read_array(reader: _Reader, depth: int) -> Any:
    dtype = _plain_dtype(reader.blob())
    shape = reader.value(depth)
    data = reader.value(depth)
    array = np.frombuffer(data, dtype=dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _plain_dtype(name: bytes) -> np.dtype[Any]:
    if not _DTYPE.fullmatch(name.decode()):
        raise SnapshotError(f"arrays of {name[:40]!r} hold Python objects or records: refused")
    return np.dtype(name.decode())


def _read_deque(reader: _Reader, depth: int) -> Any:
    maxlen, items = reader.value(depth), reader.value(depth)
    if type(items) is not tuple:
        raise SnapshotError(f"wanted the items of a deque as a tuple, got a {type(items).__name__}: damaged")
    return deque(items, maxlen) if reader.makes else items


_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"i": lambda reader, depth: int.from_bytes(reader.blob(), "little", signed=True),
    b"f": lambda reader, depth: struct.unpack("<d", reader.take(8))[0],
    b"s": lambda reader, depth: reader.blob().decode("utf-8", "surrogatepass"),
    b"b": lambda reader, depth: reader.blob(),
    b"t": lambda reader, depth: tuple(reader.items(depth)),
    b"l": lambda reader, depth: reader.items(depth),
    b"d": _read_dict,
    b"z": _read_frozenset,
    b"a": _read_array,
    b"g": _read_scalar,
    b"r": _read_record,
    b"e": _read_enum,
    b"q": _read_deque,
}
# The most memory that a value takes in addition to its bytes, its slot in a container included. Filled tables take
# more.
_MEMORY = dict.fromkeys(_READERS, 80) | dict.fromkeys((b"N", b"T", b"F"), 24)
_MEMORY |= {b"a": 264, b"q": 800}
_FILLED = _MEMORY | {b"d": 264, b"z": 264}
_MOST_MEMORY = max(_FILLED.values())
# One shared object: unlike an empty tuple, each new empty frozenset takes over 200 bytes.
_NOTHING: frozenset[Any] = frozenset()
