"""Where an environment's randomness is set from outside: Gymnasium's generator, and keys of JAX."""

import re
import sys
from typing import Any

import numpy as np

from tsr_gym.random_stream import Drawn, RandomStream, Seeded, canonical, set_position


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


_KEY_NAMES = re.compile(r"(^|_)(rng|key|keys|prng|random)$")


def replace_keys(env: Any, seed: int) -> None:
    """Replace the keys of JAX that are attributes of an environment by ones that depend on `seed` alone."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return
    for number, (name, value) in enumerate(sorted(vars(env).items())):
        if _KEY_NAMES.search(name) and isinstance(value, jax.Array):
            word = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
            if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
                object.__setattr__(env, name, jax.random.key(word))
            elif value.dtype == np.uint32 and value.shape == (2,):
                object.__setattr__(env, name, jax.random.PRNGKey(word))
