"""The random stream of an environment as a value: read, set and shared, without numpy until the first draw.

Invariant: `_position` is the true position of the stream, or None while only `_generator` knows it.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils import seeding

from tsr_gym.errors import SnapshotError

_BIT_GENERATORS = {
    cls.__name__: cls
    for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


# Exclusive upper bounds of the state of a PCG64: state, increment, has_uint32, uinteger.
_PCG64 = (1 << 128, 1 << 128, 2, 1 << 32)


class Seeded(NamedTuple):
    """A stream that starts at a seed and has not been drawn from."""

    seed: int


class Drawn(NamedTuple):
    """A stream's exact position: the bit generator's name and its state."""

    bit_generator: str
    state: tuple[Any, ...]


Position = Seeded | Drawn


def position_of(generator: np.random.Generator) -> Drawn:
    """Return the position of a generator."""
    state = generator.bit_generator.state
    if state["bit_generator"] == "PCG64":
        inner = state["state"]
        return Drawn("PCG64", (inner["state"], inner["inc"], state["has_uint32"], state["uinteger"]))
    return Drawn(state["bit_generator"], _freeze(state))


def canonical(position: Position) -> Drawn:
    """Return the position in the one form that equal streams share."""
    return position_of(seeding.np_random(position.seed)[0]) if isinstance(position, Seeded) else position


def is_position(position: object) -> bool:
    """Return whether a value is a valid position of a generator; it may come from untrusted bytes."""
    if type(position) is Seeded:
        # Gymnasium seeds a generator with Python's integers only.
        return isinstance(position.seed, int) and position.seed >= 0
    if type(position) is not Drawn:
        return False
    name, state = position
    if name == "PCG64" and type(state) is tuple and len(state) == len(_PCG64):
        return all(type(part) is int and 0 <= part < end for part, end in zip(state, _PCG64, strict=True))
    try:
        set_position(_scratch(name), position)
    # Numpy parses the state here and may raise any exception.
    except Exception:
        return False
    return True


def check_seed(seed: int) -> None:
    """Raise ValueError unless a value can seed a generator; the stream would notice it only at the next draw."""
    if not is_position(Seeded(seed)):
        raise ValueError(f"wanted a seed as a whole number >= 0, got {seed!r:.100}")


@lru_cache(maxsize=len(_BIT_GENERATORS))
def _scratch(name: str) -> np.random.Generator:
    return np.random.Generator(_BIT_GENERATORS[name](0))


def set_position(generator: np.random.Generator, position: Drawn) -> None:
    """Set the position of a generator with the same bit generator."""
    if position.bit_generator == "PCG64":
        state, inc, has_uint32, uinteger = position.state
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": inc},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
    else:
        generator.bit_generator.state = _thaw(position.state)


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in value.items())
    return value.copy() if isinstance(value, np.ndarray) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, tuple):
        return {key: _thaw(item) for key, item in value}
    return value


class RandomStream:
    """A `numpy.random.Generator` whose position is an immutable value.

    Setting the position costs nothing until the next draw, so environments whose transitions draw no noise never pay
    for their generator when they are restored. The caller of `expose` may draw from the generator at any time, so from
    then on the position is always read from the generator and written to it.
    """

    __slots__ = ("_exposed", "_generator", "_position")

    def __init__(self, generator: np.random.Generator | None = None, position: Position | None = None) -> None:
        self._generator = generator
        self._position = position
        self._exposed = False

    @property
    def position(self) -> Position:
        """The position of the stream."""
        position = self._position
        if position is None:
            if self._generator is None:
                raise SnapshotError("the environment has no random state yet: call reset(seed=...) first")
            position = position_of(self._generator)
            # Nothing moves a generator that no caller holds, until the next draw: the position need not be read again.
            if not self._exposed:
                self._position = position
        return position

    @position.setter
    def position(self, position: Position) -> None:
        self._position = position
        if self._exposed:
            self._materialise()

    @property
    def untouched(self) -> bool:
        """Whether nothing can have been drawn since `position` was last read or set."""
        return self._position is not None

    @property
    def seeded(self) -> bool:
        """Whether there are random numbers to draw."""
        return self._generator is not None or self._position is not None

    def draw(self) -> np.random.Generator:
        """Return the generator for one transition's use; the caller must not keep it."""
        if self._position is not None:
            self._materialise()
        assert self._generator is not None
        return self._generator

    def expose(self) -> np.random.Generator | None:
        """Return the generator for a caller that may keep it; None if the stream was never seeded."""
        if self._position is not None:
            self._materialise()
        self._exposed = self._generator is not None
        return self._generator

    def _materialise(self) -> None:
        position, self._position = self._position, None
        assert position is not None
        # A generator that no caller holds can simply be replaced. An exposed one must be set in place.
        if isinstance(position, Seeded) and not self._exposed:
            self._generator = seeding.np_random(position.seed)[0]
            return
        drawn = canonical(position)
        generator = self._generator
        if generator is None or generator.bit_generator.state["bit_generator"] != drawn.bit_generator:
            if drawn.bit_generator not in _BIT_GENERATORS:
                raise SnapshotError(
                    f"unknown bit generator {drawn.bit_generator!r}; wanted one of {sorted(_BIT_GENERATORS)}"
                )
            self._generator = generator = np.random.Generator(_BIT_GENERATORS[drawn.bit_generator]())
        set_position(generator, drawn)
