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
KINDS |= {cls: cls.__name__ for cls in BIT_GENERATORS}


def reading(generator: Any) -> tuple[str, Any]:
    """Return the type name of a generator and its state, as plain values."""
    name = KINDS[type(generator)]
    if name == "Generator":
        return name, position_of(generator)
    if name == "Random":
        return name, generator.getstate()
    if name == "RandomState":
        return name, generator.get_state(legacy=False)
    return name, generator.state


def build(name: str, state: Any) -> Any:
    """Return a new generator in the state that `reading` returned.

    Raises:
        SnapshotError: The type name is unknown.
    """
    if name == "Generator":
        return RandomStream(position=state).draw()
    if name == "Random":
        made = random.Random()
        made.setstate(state)
        return made
    if name == "RandomState":
        legacy = np.random.RandomState()
        legacy.set_state(state)
        return legacy
    for cls in BIT_GENERATORS:
        if cls.__name__ == name:
            bits = cls()
            bits.state = state
            return bits
    raise SnapshotError(f"unknown type of generator {name!r}; the types are {sorted(KINDS.values())}")


def reseeded(name: str, state: Any, seed: int, number: int) -> Any:
    """Return a new generator of the same type and bit generator; its numbers depend only on `seed` and `number`."""
    # By seed alone, all generators of an environment would draw the same numbers.
    words = np.random.SeedSequence((seed, number))
    if name == "Random":
        return random.Random(int.from_bytes(words.generate_state(4).tobytes(), "little"))
    if name == "RandomState":
        return np.random.RandomState(np.random.MT19937(words))
    bits_name = state.bit_generator if name == "Generator" else name
    bits = next(cls for cls in BIT_GENERATORS if cls.__name__ == bits_name)(words)
    return np.random.Generator(bits) if name == "Generator" else bits


def stand_of(generator: Any) -> tuple[str, Any]:
    """Return the type name of a generator of numpy, Python or PyTorch and its state, as plain values."""
    if _is_torch(generator):
        return "torch", generator.get_state().numpy().copy()
    return reading(generator)


def place(generator: Any, stand: tuple[str, Any]) -> None:
    """Set the state of a generator in place.

    Raises:
        SnapshotError: The state is one of another type of generator.
    """
    name, state = stand
    if name != (mine := "torch" if _is_torch(generator) else KINDS[type(generator)]):
        raise SnapshotError(f"wanted the state of a generator of the type {mine}, got {name}: reset the environment")
    if name == "torch":
        generator.set_state(sys.modules["torch"].from_numpy(np.array(state)))
    elif name == "Generator":
        set_position(generator, state)
    elif name == "Random":
        generator.setstate(state)
    elif name == "RandomState":
        generator.set_state(state)
    else:
        generator.state = state


def reseed(generator: Any, seed: int, number: int) -> None:
    """Reseed a generator in place; its numbers then depend only on `seed` and `number`."""
    if _is_torch(generator):
        generator.manual_seed(int(np.random.SeedSequence((seed, number)).generate_state(1)[0]))
        return
    name, state = reading(generator)
    fresh = reseeded(name, state, seed, number)
    if name == "Generator":
        generator.bit_generator.state = fresh.bit_generator.state
    elif name == "Random":
        generator.setstate(fresh.getstate())
    elif name == "RandomState":
        generator.set_state(fresh.get_state(legacy=False))
    else:
        generator.state = fresh.state


def _is_torch(value: Any) -> bool:
    return type(value).__name__ == "Generator" and module_of(type(value)).partition(".")[0] == "torch"


class GlobalDraws:
    """The global generators that were drawn from; filled in when `watched_globals` ends.

    Attributes:
        names: ``"random"`` and ``"numpy.random"``, as far as they were drawn from.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()


@contextmanager
def watched_globals() -> Iterator[GlobalDraws]:
    """Watch the global generators of `random` and `numpy.random`, and restore their states at the end."""
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
    """Return the generators in an object's attributes, and in containers and objects there, each once.

    Generators of spaces are left out: the caller that samples actions owns them.
    """
    generators: dict[int, Any] = {}
    seen: set[int] = set()

    def look(value: Any, left: int) -> None:
        if type(value) in KINDS or _is_torch(value):
            generators[id(value)] = value
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
    return list(generators.values())


def place_generator(env: Any, position: Drawn | None, seed: int | None) -> Any:
    """Set the environment's generator and return it.

    The generator object stays the same where possible, because other objects may hold it.

    Args:
        env: The environment.
        position: The position to set; None for an environment that has no generator yet.
        seed: If given, seeds the generator instead.
    """
    generator = vars(env).get("_np_random")
    target = position if seed is None else canonical(Seeded(seed))
    if target is None:
        if generator is not None:
            object.__setattr__(env, "_np_random", None)
        return None
    if generator is None or type(generator.bit_generator).__name__ != target.bit_generator:
        generator = RandomStream(position=target).draw()
        object.__setattr__(env, "_np_random", generator)
    else:
        set_position(generator, target)
    if seed is not None:
        object.__setattr__(env, "_np_random_seed", seed)
    return generator


class Dice(NamedTuple):
    """The states of all random generators of an environment.

    Attributes:
        own: Position of Gymnasium's generator; None where the environment has none yet.
        others: The other generators among its attributes, in order.
        keys: The JAX keys among its attributes, by name, as numbers.
    """

    own: Drawn | None
    others: tuple[tuple[str, Any], ...]
    keys: dict[str, Any]


def dice_of(env: Any) -> Dice:
    """Return the states of all random generators of an environment."""
    own = vars(env).get("_np_random")
    others = tuple([stand_of(other) for other in held_by(env) if other is not own])
    return Dice(None if own is None else position_of(own), others, {name: data for name, data, _ in _keys(env)})


def place_dice(env: Any, dice: Dice) -> None:
    """Set all random generators of an environment to earlier states.

    Raises:
        SnapshotError: The environment holds another number of generators.
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
    """Return the JAX keys among the attributes: name, numbers, and whether the array has a key type."""
    jax: Any = sys.modules.get("jax")
    keys = []
    for name, value in sorted(vars(env).items()) if jax is not None else ():
        if _KEY_NAMES.search(name) and isinstance(value, jax.Array):
            if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
                keys.append((name, np.array(jax.random.key_data(value)), True))
            elif value.dtype == np.uint32 and value.shape == (2,):
                keys.append((name, np.array(value), False))
    return keys


# A raw key of JAX is an array of two words, and so may be other arrays: the name of the attribute decides.
_KEY_NAMES = re.compile(r"(^|_)(rng|key|keys|prng|random)$")


def replace_keys(env: Any, seed: int) -> None:
    """Replace the JAX keys among the attributes of an environment by keys that depend only on `seed`."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return
    for number, (name, _, is_typed) in enumerate(_keys(env)):
        word = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        object.__setattr__(env, name, jax.random.key(word) if is_typed else jax.random.PRNGKey(word))
