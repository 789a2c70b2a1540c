"""Exact values of any play on the ice: of given turns, of uniformly random turns, and of any stochastic policy.

What the best play is worth stands in `tsr_gym_envs.frozen_lake.optimal`. Everything here plays turns as `FrozenLakeEnv`
does: words that mean nothing are dropped, a turn is cut at the limits and ends where the episode does.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from tsr_gym import ConfigError, Limits
from tsr_gym.text_env import split_turn
from tsr_gym_envs.frozen_lake.rules import ACTIONS, FrozenLakeState, Ice, moves

Array = NDArray[np.float64]
# State, turns left and actions left to the probabilities of the next turn's texts.
TurnPolicy = Callable[[FrozenLakeState, int, int | None], Mapping[str, float]]

_NUMBERS = {name.lower(): number for number, name in enumerate(ACTIONS)}


@lru_cache(maxsize=512)
def step_chances(desc: tuple[str, ...], ice: Ice) -> Array:
    """Return `[4, C, C]`, by action the chance to get from one of C cells to another; holes and goals keep everyone."""
    table = moves(desc, ice, True)
    step: Array = np.zeros((4, len(table), len(table)))
    for cell, row in enumerate(table):
        for action, move in enumerate(row):
            for chance, there, *_ in move.outcomes:
                step[action, cell, there] += chance
    step.setflags(write=False)
    return step


def read_turn(text: str, max_actions: int | None, limits: Limits) -> tuple[int, ...]:
    """Return the numbers of the actions that a turn carries out where it does not end the episode.

    Args:
        text: The turn, without tags.
        max_actions: Actions that the episode has left, None for any number.
        limits: Of the environment.

    >>> read_turn("Up || jump || right || down", 2, Limits(max_actions_per_turn=3))
    (3, 2)
    """
    wanted = split_turn(text, "||")[: limits.max_actions_per_turn]
    known = (_NUMBERS.get(name.lower()) for name in wanted)
    return tuple(number for number in known if number is not None)[:max_actions]


def spread(desc: tuple[str, ...], start: Array, actions: Sequence[int], *, ice: Ice) -> Array:
    """Return `[C]`, the chance to stand on each cell after some actions; holes and goals hold whom they have.

    Args:
        desc: The map, with C cells.
        start: `[C]`, the chances before.
        actions: Indices into `ACTIONS`, taken one after the other without looking.
        ice: How slippery the lake is.
    """
    step = step_chances(desc, ice)
    for action in actions:
        start = start @ step[action]
    return start


def blind_value(state: FrozenLakeState, turns: Sequence[str], *, ice: Ice, limits: Limits) -> float:
    """Return the chance of success of turns that are played from the start of an episode, whatever happens.

    Args:
        state: Where the episode starts.
        turns: Their texts, without tags; those beyond the limits are not played.
        ice: How slippery the lake is.
        limits: Of the environment.
    """
    left, where = limits.max_actions, _standing(state)
    for text in turns[: limits.max_turns]:
        actions = read_turn(text, left, limits)
        left = None if left is None else left - len(actions)
        where = spread(state.desc, where, actions, ice=ice)
    return float(where @ _won(state.desc))


def turn_value(state: FrozenLakeState, actions: Sequence[int], after: Array, *, ice: Ice) -> float:
    """Return what a turn is worth from a state: the mean over where it leads.

    Args:
        state: Where it is played.
        actions: Indices into `ACTIONS`.
        after: `[C]`, what every cell is worth after the turn.
        ice: How slippery the lake is.
    """
    return float(spread(state.desc, _standing(state), actions, ice=ice) @ after)


def random_values(desc: tuple[str, ...], turns_left: int, actions_left: int, *, max_actions: int, ice: Ice) -> Array:
    """Return `[C]`, the chance of success from each cell of turns of uniformly random actions.

    Of each turn, every number of actions from 1 to `max_actions` is equally likely; those that the limit does not leave
    are not carried out.
    """
    step: Array = step_chances(desc, ice).mean(axis=0)

    @cache
    def value(turns: int, actions: int) -> Array:
        if turns == 0 or actions == 0:
            return _won(desc)
        lengths = [min(length, actions) for length in range(1, max_actions + 1)]
        after = [np.linalg.matrix_power(step, length) @ value(turns - 1, actions - length) for length in lengths]
        mean: Array = np.mean(after, axis=0)
        return mean

    return value(turns_left, actions_left)


def policy_value(
    state: FrozenLakeState,
    policy: TurnPolicy,
    *,
    ice: Ice,
    limits: Limits,
    turns_left: int | None = None,
    actions_left: int | None = None,
) -> float:
    """Return the exact chance of success of a stochastic policy, by enumerating everything that it may say.

    Args:
        state: Where it begins.
        policy: What it says where, with probabilities that add up to 1.
        ice: How slippery the lake is.
        limits: Of the environment; a limit of turns is needed.
        turns_left: Turns that are left, None for all that the limits allow.
        actions_left: The same of actions.

    Raises:
        ConfigError: There is no limit of turns, or probabilities do not add up to 1.
    """
    turns_left = limits.max_turns if turns_left is None else turns_left
    if turns_left is None:
        raise ConfigError("wanted a limit of turns for the value of a policy, got none")
    desc, won = state.desc, _won(state.desc)
    ended = np.array([letter in "GH" for letter in "".join(desc)])

    @cache
    def value(cell: int, turns: int, actions: int | None) -> float:
        if ended[cell] or turns == 0 or actions == 0:
            return float(won[cell])
        here = FrozenLakeState(desc, cell)
        said = policy(here, turns, actions)
        if abs(sum(said.values()) - 1) > 1e-9:
            raise ConfigError(f"wanted probabilities that add up to 1, got {sum(said.values())} at {here}")
        total = 0.0
        for text, chance in said.items():
            numbers = read_turn(text, actions, limits)
            left = None if actions is None else actions - len(numbers)
            where = spread(desc, _standing(here), numbers, ice=ice)
            total += chance * sum(
                float(where[there]) * value(int(there), turns - 1, left) for there in where.nonzero()[0]
            )
        return total

    return value(state.position, turns_left, limits.max_actions if actions_left is None else actions_left)


def _standing(state: FrozenLakeState) -> Array:
    where: Array = np.zeros(len("".join(state.desc)))
    where[state.position] = 1.0
    return where


def _won(desc: tuple[str, ...]) -> Array:
    return np.array([float(letter == "G") for letter in "".join(desc)])
