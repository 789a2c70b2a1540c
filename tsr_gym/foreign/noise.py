"""Where an environment's randomness is set from outside: Gymnasium's generator, and keys of JAX."""

import re
import sys
from typing import Any, NamedTuple

import numpy as np

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign import generators
from tsr_gym.random_stream import Drawn, RandomStream, Seeded, canonical, position_of, set_position


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
    others = tuple([generators.stand_of(other) for other in generators.held_by(env) if other is not own])
    return Dice(None if own is None else position_of(own), others, {name: data for name, data, _ in _keys(env)})


def place_dice(env: Any, dice: Dice) -> None:
    """Put all randomness of an environment where it stood.

    Raises:
        SnapshotError: It holds other generators.
    """
    own = place_generator(env, dice.own, None)
    others = [other for other in generators.held_by(env) if other is not own]
    if len(others) != len(dice.others):
        raise SnapshotError(f"wanted {len(dice.others)} generators in {type(env).__name__}, got {len(others)}")
    for other, stand in zip(others, dice.others, strict=True):
        generators.place(other, stand)
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
