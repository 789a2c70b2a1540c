"""Immutable values to bytes and back, without pickle.

Decoding builds plain values, frozen dataclasses, NamedTuples and enum members of modules that are already imported; it
never imports, never calls anything else, and refuses what it does not know. Equal values of equal types give equal
bytes; dictionaries keep their order, which is part of their bytes.
"""

import struct
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.errors import SnapshotError

MAX_DEPTH = 64


def encode(value: object) -> bytes:
    """Return the canonical bytes of a value.

    Raises:
        SnapshotError: The value holds something that has no pickle-free form, such as a function or a mutable object.

    >>> decode(encode(("turn", 3, -0.1, None))) == ("turn", 3, -0.1, None)
    True
    """
    out = bytearray()
    _write(out, value, 0)
    return bytes(out)


def decode(data: bytes) -> Any:
    """Return the value whose canonical bytes are given.

    Raises:
        SnapshotError: The bytes are damaged, or name a class whose module has not been imported.
    """
    reader = _Reader(memoryview(data))
    value = reader.value(0)
    if reader.position != len(data):
        raise SnapshotError(f"wanted {reader.position} bytes, got {len(data)}: the value is damaged")
    return value


def digest(value: object) -> str:
    """Return a 128-bit hexadecimal digest of a value's canonical bytes."""
    return blake2b(encode(value), digest_size=16).hexdigest()


class _Record(NamedTuple):
    """How a dataclass or NamedTuple is taken apart and put together."""

    module: str
    name: str
    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    make: Callable[[list[Any]], Any]


@lru_cache(maxsize=512)
def _record(cls: Any) -> _Record | None:
    module, qualname = cls.__module__, cls.__qualname__
    if issubclass(cls, tuple) and "_fields" in vars(cls):
        names = tuple(vars(cls)["_fields"])
        return _Record(module, qualname, names, tuple, lambda parts: cls(*parts))
    # A class that only inherits from a dataclass may hold more than its fields.
    if "__dataclass_params__" in vars(cls) and vars(cls)["__dataclass_params__"].frozen:
        names = tuple(item.name for item in fields(cls) if item.init)
        getters = [attrgetter(name) for name in names]
        return _Record(
            module,
            qualname,
            names,
            lambda value: tuple(get(value) for get in getters),
            # By name, because fields may be keyword-only.
            lambda parts: cls(**dict(zip(names, parts, strict=True))),
        )
    return None


def _length(out: bytearray, tag: bytes, size: int) -> None:
    out += tag
    out += struct.pack("<I", size)


def _blob(out: bytearray, tag: bytes, data: bytes) -> None:
    _length(out, tag, len(data))
    out += data


def _write(out: bytearray, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise SnapshotError(f"wanted a value nested at most {MAX_DEPTH} deep: flatten the state")
    kind: Any = type(value)
    if writer := _WRITERS.get(kind):
        writer(out, value, depth + 1)
    elif isinstance(value, Enum):
        _blob(out, b"e", f"{kind.__module__}\0{kind.__qualname__}\0{value.name}".encode())
    elif isinstance(value, np.generic) and value.dtype.kind not in "OV":
        _blob(out, b"g", value.dtype.str.encode() + b"\0" + value.tobytes())
    elif record := _record(kind):
        parts = record.read(value)
        header = "\0".join((record.module, record.name, *record.names))
        _blob(out, b"r", header.encode())
        # Depth is counted as the reader counts it, so that whatever can be written can be read.
        _items(out, b"t", parts, depth + 2)
    else:
        raise SnapshotError(
            f"a {kind.__module__}.{kind.__qualname__} has no pickle-free form; wanted numbers, text, bytes, tuples, "
            "frozensets, arrays, enum members, frozen dataclasses or NamedTuples: keep other objects out of the state"
        )


def _items(out: bytearray, tag: bytes, items: Any, depth: int) -> None:
    _length(out, tag, len(items))
    for item in items:
        _write(out, item, depth)


def _write_int(out: bytearray, value: int, depth: int) -> None:
    _blob(out, b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


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
    out += b"".join(sorted(parts))


def _write_array(out: bytearray, value: np.ndarray[Any, Any], depth: int) -> None:
    if value.dtype.kind in "OV":
        raise SnapshotError("an array of objects or records has no pickle-free form: use numeric arrays or tuples")
    _blob(out, b"a", value.dtype.str.encode())
    _items(out, b"t", value.shape, depth + 1)
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
}


class _Reader:
    """A cursor over canonical bytes that never reads, or allocates for, more than is there."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
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

    def items(self, depth: int) -> list[Any]:
        return [self.value(depth) for _ in range(self.size())]

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise SnapshotError(f"wanted a value nested at most {MAX_DEPTH} deep: the value is damaged")
        tag = self.take(1)
        reader = _READERS.get(tag)
        if reader is None:
            raise SnapshotError(f"unknown tag {tag!r} at byte {self.position - 1}: the value is damaged")
        try:
            return reader(self, depth + 1)
        except SnapshotError:
            raise
        # Numpy and the constructors of foreign classes are called here, and may raise anything.
        except Exception as error:
            raise SnapshotError(
                f"value at byte {self.position} cannot be read ({error}): damaged or of another version"
            ) from error


def _known_class(module: str, name: str) -> Any:
    if module not in sys.modules:
        raise SnapshotError(f"the value holds a {module}.{name}: import {module} first, or make its environment")
    return attrgetter(name)(sys.modules[module])


def _read_record(reader: _Reader, depth: int) -> Any:
    module, name, *names = reader.blob().decode().split("\0")
    parts = reader.value(depth)
    cls = _known_class(module, name)
    record = _record(cls) if isinstance(cls, type) else None
    if record is None:
        raise SnapshotError(f"{module}.{name} is neither a frozen dataclass nor a NamedTuple: refused")
    if record.names != tuple(names):
        raise SnapshotError(f"{module}.{name} has the fields {record.names}, the value {tuple(names)}: another version")
    return record.make(parts)


def _read_enum(reader: _Reader, depth: int) -> Any:
    module, name, member = reader.blob().decode().split("\0")
    cls = _known_class(module, name)
    if not (isinstance(cls, type) and issubclass(cls, Enum)):
        raise SnapshotError(f"{module}.{name} is not an enum: refused")
    return cls[member]


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
    dtype = np.dtype(name.decode())
    if dtype.hasobject:
        raise SnapshotError(f"arrays of {dtype} hold Python objects: refused")
    return dtype


def _read_deque(reader: _Reader, depth: int) -> Any:
    maxlen = reader.value(depth)
    return deque(reader.value(depth), maxlen)


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
    b"d": lambda reader, depth: {reader.value(depth): reader.value(depth) for _ in range(reader.size())},
    b"z": lambda reader, depth: frozenset(reader.items(depth)),
    b"a": _read_array,
    b"g": _read_scalar,
    b"r": _read_record,
    b"e": _read_enum,
    b"q": _read_deque,
}
