"""Rules about what lies around an environment: global generators, clocks, and generators that no snapshot reaches."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

import gymnasium as gym

from tsr_gym.errors import CheckFailed
from tsr_gym.foreign.differences import difference
from tsr_gym.testing.facts import Shot, is_own, layers_of, name_of
from tsr_gym.testing.global_state import global_random_state, global_seed, shifted_clocks, who_draws
from tsr_gym.testing.recording import Recording, drive, record
from tsr_gym.testing.suspects import hidden_generators


def no_generator_is_hidden(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """No function or class of the stack holds a random generator of its own."""
    if found := hidden_generators(env):
        raise CheckFailed(
            "hidden_generator",
            f"{found[0]} is a random generator, which no snapshot can reach: draw from the `rng` that initial() and "
            "transition() are given",
        )


def global_generators_are_left_alone(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """`random` and `numpy.random` are neither advanced nor read."""
    advanced = False

    def play(global_state: int) -> Recording:
        nonlocal advanced
        with global_seed(global_state):
            before = global_random_state()
            recording = record(env, seed, steps)
            advanced = advanced or global_random_state() != before
        return recording

    found = _dependence(play, is_own(env))
    if advanced or found:
        # On another global state the episode may end earlier, but whoever draws does so from the beginning.
        culprits = who_draws(partial(drive, env, play(0)))
        raise CheckFailed(
            "global_random",
            f"{', '.join(culprits) or name_of(env.unwrapped)} uses a global random generator "
            f"({found or 'which it advances'}): draw from the `rng` that initial() and transition() are given",
        )


def clocks_do_not_matter(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """An episode is the same at another time of day."""
    modules = {sys.modules[cls.__module__] for layer in layers_of(env) for cls in type(layer).__mro__}
    readers: set[str] = set()

    def play(late: int) -> Recording:
        with shifted_clocks(modules, 5 * late) as found_readers:
            recording = record(env, seed, steps)
        readers.update(found_readers)
        return recording

    found = _dependence(play, is_own(env))
    if readers and found:
        raise CheckFailed(
            "wall_clock",
            f"{', '.join(sorted(readers))} reads the clock, and five hours later {found}: keep time out of states, "
            "observations and rewards",
        )


def _dependence(play: Callable[[int], Recording], own: bool) -> str | None:
    """Return how an episode differs between circumstances 0 and 1.

    None where it does not, and where it differs from time to time anyway: that has another reason, and another rule.
    """
    first, second = play(0), play(1)
    found = _first_difference(first, second, own)
    for _ in range(3 if found else 0):
        if _first_difference(first, play(0), own) or _first_difference(second, play(1), own):
            return None
    return found


def _first_difference(first: Recording, second: Recording, own: bool) -> str | None:
    for one, other in zip_longest(first.shots, second.shots, fillvalue=Shot((), ())):
        # What a foreign environment holds without showing it is its own business.
        if found := difference(one.all, other.all) if own else difference(one.returned, other.returned):
            return found
    return None
