"""Snapshot: everything that decides an environment's future, as one immutable value."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import starmap
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import VectorEnv

from tsr_gym.codec import Constant, decode, encode, find, outline, packages_of
from tsr_gym.errors import SnapshotError
from tsr_gym.random_stream import Position, canonical

MAGIC = b"TSR-SNAP"
VERSION = 1
_DIGEST_SIZE = 16
# Sets attributes of a `Snapshot`, whose own `__setattr__` raises.
_set = object.__setattr__


class Layer(NamedTuple):
    """One layer of a stack: the class that wrote it (``"module:Class"``) and its episode state."""

    kind: str
    state: Any


class Deferred:
    """The state of a layer that is converted to a form with bytes only on request."""

    def same_as(self, other: object) -> bool:
        """Return whether another state is equal, also if neither has a byte form."""
        raise NotImplementedError

    def portable(self) -> Any:
        """Return an equal value that has a pickle-free form.

        Raises:
            SnapshotError: The state has none.
        """
        raise NotImplementedError


class EnvState(NamedTuple):
    """The state in the innermost layer of a `StateEnv`.

    `rules` is the configuration that the episode's future depends on: an environment with other rules refuses the
    snapshot.
    """

    rules: Any
    episode: Any
    position: Position


class Snapshot:
    """An immutable, hashable, picklable snapshot of an environment, wrappers included.

    Two snapshots are equal if the state of every layer, the random state and all counters are equal. Restoring one
    continues the episode bit for bit. In memory it shares the environment's immutable state, so taking one copies
    nothing; bytes and digest are computed on request.

    Args:
        layers: Outermost wrapper first, the environment last.

    Attributes:
        came_as_bytes: Whether `from_bytes` made it; its content is then not trusted.
    """

    __slots__ = ("_digest", "_layers", "_payload", "came_as_bytes")
    _layers: tuple[Layer, ...] | None
    _payload: bytes | None
    _digest: str | None
    came_as_bytes: bool

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        _set(self, "_layers", layers)
        _set(self, "_payload", None)
        _set(self, "_digest", None)
        _set(self, "came_as_bytes", False)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Snapshot is immutable: cannot set {name}")

    @property
    def kinds(self) -> list[str]:
        """The class names of the layers, outermost first. Reading them looks up no class.

        Raises:
            SnapshotError: The snapshot was read from bytes that hold no layers.
        """
        if self._layers is not None:
            return [layer.kind for layer in self._layers]
        assert self._payload is not None
        layers = outline(self._payload)
        if not (type(layers) is tuple and layers and all(map(_is_layer, layers))):
            raise SnapshotError("the bytes do not hold a tuple of layers: not a snapshot")
        return [name for name, _ in layers]

    @property
    def packages(self) -> frozenset[str]:
        """The packages of the environments and wrappers of its layers, as far as they are imported."""
        return frozenset().union(*map(_packages_of_kind, self.kinds))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers, outermost first.

        Raises:
            SnapshotError: The snapshot was read from bytes and names classes that are not imported, have changed, or
                belong neither to the packages of its environments and wrappers nor to tsr_gym.
        """
        if self._layers is None:
            assert self._payload is not None
            layers = decode(self._payload, self.packages)
            if not (isinstance(layers, tuple) and layers and all(isinstance(layer, Layer) for layer in layers)):
                raise SnapshotError("the bytes do not hold a tuple of layers: not a snapshot")
            if any(isinstance(layer.state, Deferred) for layer in layers):
                raise SnapshotError("the bytes hold a state in a form that has no bytes: not a snapshot")
            _set(self, "_layers", layers)
        assert self._layers is not None
        return self._layers

    @property
    def digest(self) -> str:
        """32 hexadecimal digits over everything: state, random state, counters and wrapper state."""
        if self._digest is None:
            _set(self, "_digest", blake2b(self._encoded(), digest_size=_DIGEST_SIZE).hexdigest())
        assert self._digest is not None
        return self._digest

    def _encoded(self) -> bytes:
        if self._payload is None:
            assert self._layers is not None
            _set(self, "_payload", encode(tuple(map(_canonical_layer, self._layers))))
        assert self._payload is not None
        return self._payload

    def to_bytes(self) -> bytes:
        """Return the versioned, pickle-free byte form.

        Raises:
            SnapshotError: The state contains an object without a pickle-free form.
        """
        return MAGIC + bytes([VERSION]) + bytes.fromhex(self.digest) + self._encoded()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Snapshot":
        """Return the snapshot that `to_bytes` wrote, also in another process.

        The bytes are verified here; the state's classes are looked up when the snapshot is first restored.

        Raises:
            SnapshotError: The bytes are not a snapshot, of another version, cut short or altered.
        """
        head = len(MAGIC) + 1
        if not isinstance(data, bytes) or data[: len(MAGIC)] != MAGIC:
            raise SnapshotError("wanted the bytes of Snapshot.to_bytes(), got something else")
        if len(data) < head + _DIGEST_SIZE:
            raise SnapshotError(f"wanted at least {head + _DIGEST_SIZE} bytes, got {len(data)}: cut short")
        if data[head - 1] != VERSION:
            raise SnapshotError(
                f"wanted snapshot version {VERSION}, got {data[head - 1]}: take it again with this version"
            )
        payload = data[head + _DIGEST_SIZE :]
        digest = blake2b(payload, digest_size=_DIGEST_SIZE).digest()
        if digest != data[head : head + _DIGEST_SIZE]:
            raise SnapshotError("the bytes do not match their digest: the snapshot is damaged")
        # Built without layers: they are decoded on the first use, when the environment's packages are known.
        snapshot = cls(())
        _set(snapshot, "_layers", None)
        _set(snapshot, "_payload", payload)
        _set(snapshot, "_digest", digest.hex())
        _set(snapshot, "came_as_bytes", True)
        return snapshot

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return False
        if self is other:
            return True
        try:
            return self.digest == other.digest
        except SnapshotError:
            # Foreign objects may have no byte form and can still be compared.
            return _same(self.layers, other.layers)

    def __hash__(self) -> int:
        try:
            # 60 bits, which Python keeps as they are when it makes a hash of them.
            return int(self.digest[:15], 16)
        except SnapshotError:
            return hash(tuple(layer.kind for layer in self.layers))

    def __copy__(self) -> "Snapshot":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Snapshot":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return (
            f"Snapshot({' < '.join(layer.kind.rpartition(':')[2] for layer in self.layers)}, digest={self.digest[:8]})"
        )


def _is_layer(parts: Any) -> bool:
    """Return whether the outline of a value is that of a layer."""
    return type(parts) is tuple and len(parts) == len(Layer._fields) and isinstance(parts[0], str)


def _packages_of_kind(layer: str) -> frozenset[str]:
    """Return the packages of an environment or wrapper class; empty if no such class is imported."""
    module, _, name = layer.partition(" ")[0].partition(":")
    cls = find(module, name)
    if "<locals>" in name:
        # A class that is defined in a function is in no module, so it is searched among the subclasses.
        classes = _below(gym.Env, VectorEnv)
        cls = next((item for item in classes if f"{item.__module__}:{item.__qualname__}" == f"{module}:{name}"), None)
    return packages_of(cls) if isinstance(cls, type) and issubclass(cls, gym.Env | VectorEnv) else frozenset()


def _below(*classes: type) -> Iterator[type]:
    for cls in classes:
        yield cls
        yield from _below(*cls.__subclasses__())


def _same(left: Any, right: Any) -> bool:
    """Return whether two layers, or parts of them, are equal. An object without a byte form equals only itself."""
    if left is right or type(left) is not type(right):
        return left is right
    if isinstance(left, Deferred):
        return left.same_as(right)
    if isinstance(left, dict):
        left, right = list(left.items()), list(right.items())
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(starmap(_same, zip(left, right, strict=True)))
    try:
        return encode(left) == encode(right)
    except SnapshotError:
        return False


def _canonical_layer(layer: Layer) -> Layer:
    if isinstance(layer.state, Deferred):
        return layer._replace(state=layer.state.portable())
    if not isinstance(layer.state, EnvState):
        return layer
    # A stream that was only seeded and one that was built from the seed are equal, so both are written in one form.
    rules, episode, position = layer.state
    return Layer(layer.kind, EnvState(Constant(rules), episode, canonical(position)))
