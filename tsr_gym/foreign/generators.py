"""Random generators of others: read, rebuilt, reseeded; and the global ones, watched.

The one file beside the conformance checks that touches the module `random` and numpy's legacy generator, because
environments of others do.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.objects import module_of
from tsr_gym.random_stream import RandomStream, position_of, set_position

BIT_GENERATORS = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
KINDS: dict[type, str] = {np.random.Generator: "Generator", np.random.RandomState: "RandomState"} | {
    random.Random: "Random"
}
KINDS |= {kind: kind.__name__ for kind in BIT_GENERATORS}


def reading(generator: Any) -> tuple[str, Any]:
    """Return the kind of a generator and where it stands, as plain values."""
    kind = KINDS[type(generator)]
    if kind == "Generator":
        return kind, position_of(generator)
    if kind == "Random":
        return kind, generator.getstate()
    if kind == "RandomState":
        return kind, generator.get_state(legacy=False)
    return kind, generator.state


def build(kind: str, state: Any) -> Any:
    """Return a new generator of a kind that stands where `reading` said.

    Raises:
        SnapshotError: The kind is not known.
    """
    if kind == "Generator":
        return RandomStream(position=state).draw()
    if kind == "Random":
        made = random.Random()
        made.setstate(state)
        return made
    if kind == "RandomState":
        legacy = np.random.RandomState()
        legacy.set_state(state)
        return legacy
    for known in BIT_GENERATORS:
        if known.__name__ == kind:
            bits = known()
            bits.state = state
            return bits
    raise SnapshotError(f"unknown kind of generator {kind!r}; known: {sorted(KINDS.values())}")


def reseeded(kind: str, state: Any, seed: int, number: int) -> Any:
    """Return a new generator of the same kind and make, whose numbers depend on `seed` and `number` alone."""
    words = np.random.SeedSequence((seed, number))
    if kind == "Random":
        return random.Random(int.from_bytes(words.generate_state(4).tobytes(), "little"))
    if kind == "RandomState":
        return np.random.RandomState(np.random.MT19937(words))
    name = state.bit_generator if kind == "Generator" else kind
    bits = next(known for known in BIT_GENERATORS if known.__name__ == name)(words)
    return np.random.Generator(bits) if kind == "Generator" else bits


def stand_of(generator: Any) -> tuple[str, Any]:
    """Return the kind of a generator of numpy, Python or PyTorch and where it stands, as plain values."""
    if _is_torch(generator):
        return "torch", generator.get_state().numpy().copy()
    return reading(generator)


def place(generator: Any, stand: tuple[str, Any]) -> None:
    """Set a generator, in place, to where one of its kind stood.

    Raises:
        SnapshotError: It is of another kind.
    """
    kind, state = stand
    if kind != (mine := "torch" if _is_torch(generator) else KINDS[type(generator)]):
        raise SnapshotError(f"wanted the position of a generator of the kind {mine}, got {kind}: reset the environment")
    if kind == "torch":
        generator.set_state(sys.modules["torch"].from_numpy(np.array(state)))
    elif kind == "Generator":
        set_position(generator, state)
    elif kind == "Random":
        generator.setstate(state)
    elif kind == "RandomState":
        generator.set_state(state)
    else:
        generator.state = state


def reseed(generator: Any, seed: int, number: int) -> None:
    """Set a generator, in place, to numbers that depend on `seed` and `number` alone."""
    if _is_torch(generator):
        generator.manual_seed(int(np.random.SeedSequence((seed, number)).generate_state(1)[0]))
        return
    kind, state = reading(generator)
    fresh = reseeded(kind, state, seed, number)
    if kind == "Generator":
        generator.bit_generator.state = fresh.bit_generator.state
    elif kind == "Random":
        generator.setstate(fresh.getstate())
    elif kind == "RandomState":
        generator.set_state(fresh.get_state(legacy=False))
    else:
        generator.state = fresh.state


def _is_torch(value: Any) -> bool:
    return type(value).__name__ == "Generator" and module_of(type(value)).partition(".")[0] == "torch"


class Drawn:
    """Whether the global generators were drawn from; filled in when `watched_globals` ends.

    Attributes:
        names: The generators that were.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()


@contextmanager
def watched_globals() -> Iterator[Drawn]:
    """Watch the global generators of `random` and `numpy.random`, and put them back where they stood."""
    drawn = Drawn()
    python = random.getstate()
    legacy: Any = np.random.get_state()  # noqa: NPY002
    try:
        yield drawn
    finally:
        names = []
        if random.getstate() != python:
            names.append("random")
            random.setstate(python)
        now: Any = np.random.get_state()  # noqa: NPY002
        if now[2:] != legacy[2:] or not np.array_equal(now[1], legacy[1]):
            names.append("numpy.random")
            np.random.set_state(legacy)  # noqa: NPY002
        drawn.names = tuple(names)


def entropy() -> int:
    """Return a seed from the operating system."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def held_by(thing: Any, depth: int = 3) -> list[Any]:
    """Return the generators among an object's attributes and in the containers and objects there, each once.

    Those of spaces belong to whoever samples actions.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()

    def look(value: Any, left: int) -> None:
        if type(value) in KINDS or _is_torch(value):
            found[id(value)] = value
        elif left and id(value) not in seen and not isinstance(value, gym.Space):
            seen.add(id(value))
            if isinstance(value, list | tuple):
                parts: Any = value
            elif isinstance(value, dict):
                parts = value.values()
            else:
                parts = () if isinstance(value, type) else getattr(value, "__dict__", {}).values()
            for part in list(parts):
                look(part, left - 1)

    look(thing, depth)
    return list(found.values())
