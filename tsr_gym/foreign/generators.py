"""Random generators in foreign environments: how each library's generator is read, built, reseeded and watched."""

import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.objects import module_of
from tsr_gym.random_stream import Drawn, RandomStream, Seeded, canonical, position_of, set_position

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


class GlobalDraws:
    """Whether the global generators were drawn from; filled in when `watched_globals` ends.

    Attributes:
        names: The generators that were.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()


@contextmanager
def watched_globals() -> Iterator[GlobalDraws]:
    """Watch the global generators of `random` and `numpy.random`, and put them back where they stood."""
    drawn = GlobalDraws()
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


def place_generator(env: Any, position: Drawn | None, seed: int | None) -> Any:
    """Set the environment's generator in place, because others may hold it, and return it.

    Args:
        env: The environment.
        position: Where it shall stand; None where there is none yet.
        seed: Used instead of the position.
    """
    generator = vars(env).get("_np_random")
    wanted = position if seed is None else canonical(Seeded(seed))
    if wanted is None:
        if generator is not None:
            object.__setattr__(env, "_np_random", None)
        return None
    if generator is None or type(generator.bit_generator).__name__ != wanted.bit_generator:
        generator = RandomStream(position=wanted).draw()
        object.__setattr__(env, "_np_random", generator)
    else:
        set_position(generator, wanted)
    if seed is not None:
        object.__setattr__(env, "_np_random_seed", seed)
    return generator


class Dice(NamedTuple):
    """Where all randomness of an environment stands.

    Attributes:
        own: Gymnasium's generator, None where there is none yet.
        others: The other generators among its attributes, in order.
        keys: Keys of JAX among its attributes, by name, as numbers.
    """

    own: Drawn | None
    others: tuple[tuple[str, Any], ...]
    keys: dict[str, Any]


def dice_of(env: Any) -> Dice:
    """Return where all randomness of an environment stands."""
    own = vars(env).get("_np_random")
    others = tuple([stand_of(other) for other in held_by(env) if other is not own])
    return Dice(None if own is None else position_of(own), others, {name: data for name, data, _ in _keys(env)})


def place_dice(env: Any, dice: Dice) -> None:
    """Put all randomness of an environment where it stood.

    Raises:
        SnapshotError: It holds other generators.
    """
    own = place_generator(env, dice.own, None)
    others = [other for other in held_by(env) if other is not own]
    if len(others) != len(dice.others):
        raise SnapshotError(f"wanted {len(dice.others)} generators in {type(env).__name__}, got {len(others)}")
    for other, stand in zip(others, dice.others, strict=True):
        place(other, stand)
    jax: Any = sys.modules.get("jax")
    typed = {name for name, _, is_typed in _keys(env) if is_typed}
    for name, data in dice.keys.items():
        key = jax.numpy.asarray(data)
        object.__setattr__(env, name, jax.random.wrap_key_data(key) if name in typed else key)


def _keys(env: Any) -> list[tuple[str, Any, bool]]:
    """Return the keys of JAX that are attributes of an environment: name, numbers, and whether it is typed as a key."""
    jax: Any = sys.modules.get("jax")
    found = []
    for name, value in sorted(vars(env).items()) if jax is not None else ():
        if _KEY_NAMES.search(name) and isinstance(value, jax.Array):
            if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
                found.append((name, np.array(jax.random.key_data(value)), True))
            elif value.dtype == np.uint32 and value.shape == (2,):
                found.append((name, np.array(value), False))
    return found


_KEY_NAMES = re.compile(r"(^|_)(rng|key|keys|prng|random)$")


def replace_keys(env: Any, seed: int) -> None:
    """Replace the keys of JAX that are attributes of an environment by ones that depend on `seed` alone."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return
    for number, (name, _, is_typed) in enumerate(_keys(env)):
        word = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        object.__setattr__(env, name, jax.random.key(word) if is_typed else jax.random.PRNGKey(word))
