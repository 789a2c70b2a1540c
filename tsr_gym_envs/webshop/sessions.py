"""How an episode begins: which goal, under which key, on which random numbers."""

import operator
from typing import Any, NamedTuple

import numpy as np

from tsr_gym import ConfigError
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.webshop.catalogue.goals import Goals
from tsr_gym_envs.webshop.catalogue.original_random import Dice, draw_name, generator_of
from tsr_gym_envs.webshop.settings import WebShopSettings
from tsr_gym_envs.webshop.state import ShopState

# The original remembers every session there ever was; a state remembers the latest.
MAX_KNOWN = 256


class Stream(NamedTuple):
    """What the original carries from one episode to the next.

    Attributes:
        dice: State of its generator.
        known: (session, goal) pairs, the latest last.
    """

    dice: Dice
    known: tuple[tuple[str, int], ...] = ()


def stream_from(seed: int) -> Stream:
    """Return the random numbers of a seed, with no session known."""
    return Stream(generator_of(int(seed)).getstate())


def begin_as_original(goals: Goals, settings: WebShopSettings, options: dict[str, Any]) -> ShopState:
    """Return the start of an episode as the original draws it.

    Args:
        goals: All goals.
        settings: What decides the split and the keys.
        options: ``stream``, and ``goal`` or ``session`` where they were given.
    """
    stream: Stream = options["stream"]
    known, dice = dict(stream.known), stream.dice
    asked = _asked(options)
    number = _number(goals, asked) if isinstance(asked, int) else None
    key = f"{settings.session_prefix}{asked}"
    if asked is None or (number is None and key not in known):
        generator = generator_of(dice)
        if asked is None:
            key = settings.session_prefix + draw_name(generator)
        goal = known[key] if key in known else goals.draw(generator.random(), settings.split)
        dice = generator.getstate()
    else:
        goal = number if number is not None and ("goal" in options or key not in known) else known[key]
    known.pop(key, None)
    latest = (*known.items(), (key, goal))[-MAX_KNOWN:]
    return ShopState(goal, key, dice=dice, known=latest)


def begin(goals: Goals, settings: WebShopSettings, options: dict[str, Any], rng: np.random.Generator) -> ShopState:
    """Return the start of an episode; a key that is no number always means the same goal.

    Args:
        goals: All goals.
        settings: What decides the split and the keys.
        options: ``goal`` or ``session`` where they were given.
        rng: Draws the goal where neither was.
    """
    asked = _asked(options)
    if isinstance(asked, int):
        goal = _number(goals, asked)
    else:
        uniform = rng.random() if asked is None else derive_seed("webshop session", asked) / 2**63
        goal = goals.draw(uniform, settings.split)
    key = settings.session_prefix + str(goal if asked is None else asked)
    # Without this repair the query <r> draws products.
    is_drawing = not settings.chosen_repairs.plain_queries
    return ShopState(goal, key, dice=generator_of(int(rng.integers(2**63))).getstate() if is_drawing else None)


def _asked(options: dict[str, Any]) -> int | str | None:
    """Return the number of the goal or the key of the session that was asked for."""
    if "goal" in options and "session" in options:
        raise ConfigError("wanted a goal or a session in the options of reset, got both")
    asked = options.get("goal", options.get("session"))
    if asked is None or isinstance(asked, str):
        if "goal" in options:
            raise ConfigError(f"wanted the number of a goal, got {asked!r}")
        return asked
    try:
        return operator.index(asked)
    except TypeError as error:
        raise ConfigError(f"wanted a number or the key of a session in the options of reset, got {asked!r}") from error


def _number(goals: Goals, number: int) -> int:
    if not -len(goals) <= number < len(goals):
        raise ConfigError(f"wanted the number of a goal from {-len(goals)} to {len(goals) - 1}, got {number}")
    return number % len(goals)
