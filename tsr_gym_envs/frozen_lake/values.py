"""Exact values on the ice by dynamic programming: of the best play within limits, of given turns, and of any policy.

Turns are played as `FrozenLakeEnv` plays them: unknown words are dropped, and a turn is cut at the limits and ends when
the episode ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from tsr_gym import ConfigError, Limits
from tsr_gym.text_env import split_turn
from tsr_gym_envs.frozen_lake.rules import (
    ACTIONS,
    DEFAULT_SUCCESS_RATE,
    FrozenLakeState,
    Ice,
    check_map,
    moves,
    start_cells,
)

Array = NDArray[np.float64]
# State, turns left and actions left to the probabilities of the next turn's texts.
TurnPolicy = Callable[[FrozenLakeState, int, int | None], Mapping[str, float]]

_NUMBERS = {name.lower(): number for number, name in enumerate(ACTIONS)}


@lru_cache(maxsize=512)
def step_chances(desc: tuple[str, ...], ice: Ice) -> Array:
    """Return `[4, C, C]`, by action the chance to get from one of C cells to another; holes and goals are absorbing."""
    table = moves(desc, ice, True)
    step: Array = np.zeros((4, len(table), len(table)))
    for cell, row in enumerate(table):
        for action, move in enumerate(row):
            for chance, there, *_ in move.outcomes:
                step[action, cell, there] += chance
    step.setflags(write=False)
    return step


def read_turn(text: str, max_actions: int | None, limits: Limits) -> tuple[int, ...]:
    """Return the numbers of the actions that a turn carries out if the episode does not end within it.

    Args:
        text: The turn, without tags.
        max_actions: Actions that the episode has left, None for any number.
        limits: Of the environment.

    >>> read_turn("Up || jump || right || down", 2, Limits(max_actions_per_turn=3))
    (3, 2)
    """
    words = split_turn(text, "||")[: limits.max_actions_per_turn]
    numbers = (_NUMBERS.get(word.lower()) for word in words)
    return tuple(number for number in numbers if number is not None)[:max_actions]


def spread(desc: tuple[str, ...], start: Array, actions: Sequence[int], *, ice: Ice) -> Array:
    """Return `[C]`, the chance to stand on each cell after some actions; the player stays in a hole or on a goal.

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
    """Return the chance of success of fixed turns, played from the start of an episode without feedback.

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
    """Return the value of a turn in a state: the expected value of the cell it leads to.

    Args:
        state: The state before the turn.
        actions: Indices into `ACTIONS`.
        after: `[C]`, the value of every cell after the turn.
        ice: How slippery the lake is.
    """
    return float(spread(state.desc, _standing(state), actions, ice=ice) @ after)


def random_values(desc: tuple[str, ...], turns_left: int, actions_left: int, *, max_actions: int, ice: Ice) -> Array:
    """Return `[C]`, the chance of success from each cell of turns of uniformly random actions.

    Of each turn, every number of actions from 1 to `max_actions` is equally likely; those that the limit does not leave
    are not carried out.
    """
    step: Array = step_chances(desc, ice).mean(axis=0)

    # The number of actions is drawn per turn, so the value of a turn is the mean over the lengths; `matrix_power` plays
    # that many random actions at once.
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
    """Return the exact chance of success of a stochastic policy, by enumerating its answers.

    Args:
        state: The first state.
        policy: Its answers by state, with probabilities that add up to 1.
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
        answers = policy(here, turns, actions)
        if abs(sum(answers.values()) - 1) > 1e-9:
            raise ConfigError(f"wanted probabilities that add up to 1, got {sum(answers.values())} at {here}")
        total = 0.0
        for text, chance in answers.items():
            numbers = read_turn(text, actions, limits)
            left = None if actions is None else actions - len(numbers)
            where = spread(desc, _standing(here), numbers, ice=ice)
            # Only cells with a positive chance are expanded, which keeps the recursion small on maps with few slips.
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


MAX_SEQUENCES = 4**6


def success_ceiling(
    desc: list[str] | tuple[str, ...],
    *,
    success_rate: float = DEFAULT_SUCCESS_RATE,
    max_actions: int = 10,
    max_turns: int | None = None,
    max_actions_per_turn: int | None = None,
) -> float:
    """Return the best success probability of any policy on a map.

    Args:
        desc: The map; several starts are equally likely.
        success_rate: Probability of the intended direction.
        max_actions: Actions in an episode.
        max_turns: Turns in an episode, each a sequence of actions chosen without looking; None gives feedback after
            every action.
        max_actions_per_turn: Most actions in a turn; None where only `max_actions` binds.

    Raises:
        InvalidLevel: The map is malformed.
        ConfigError: The limits make the sequences of one turn too many to enumerate.

    >>> success_ceiling(["SFG"], success_rate=1.0, max_actions=2)
    1.0
    """
    rows = check_map(tuple(desc))
    values = _values(rows, Ice(success_rate), _longest(max_actions, max_turns, max_actions_per_turn))
    return float(values.value(max_turns, max_actions)[start_cells(rows)].mean())


def random_success(
    desc: list[str] | tuple[str, ...], *, success_rate: float = DEFAULT_SUCCESS_RATE, max_actions: int = 10
) -> float:
    """Return the success probability of uniformly random actions on a map.

    Raises:
        InvalidLevel: The map is malformed.
    """
    rows = check_map(tuple(desc))
    alive, goal = _dynamics(rows, Ice(success_rate))
    # Backwards over the remaining actions: reach a goal now, or survive and have the value with one action less.
    value = np.zeros(alive.shape[1])
    for _ in range(max_actions):
        value = (goal + alive @ value).mean(axis=0)
    return float(value[start_cells(rows)].mean())


def optimal_turn(
    desc: tuple[str, ...],
    position: int,
    *,
    ice: Ice,
    turns_left: int | None,
    actions_left: int,
    max_actions_per_turn: int | None,
) -> tuple[str, ...]:
    """Return the names of a best turn's actions; without a limit of turns, a single action."""
    values = _values(desc, ice, _longest(actions_left, turns_left, max_actions_per_turn))
    return tuple(ACTIONS[action] for action in values.best(turns_left, actions_left, position))


def best_value(
    desc: tuple[str, ...],
    position: int,
    *,
    ice: Ice,
    turns_left: int | None,
    actions_left: int,
    max_actions_per_turn: int | None,
) -> float:
    """Return the best success probability of any play from a cell, under the same limits as `optimal_turn`."""
    values = _values(desc, ice, _longest(actions_left, turns_left, max_actions_per_turn))
    return float(values.value(turns_left, actions_left)[position])


def is_feasible(max_actions: int | None, max_turns: int | None, max_actions_per_turn: int | None) -> bool:
    """Return whether the sequences of actions that one turn may hold are few enough to enumerate."""
    return max_actions is not None and 4 ** _longest(max_actions, max_turns, max_actions_per_turn) <= MAX_SEQUENCES


def _longest(max_actions: int, max_turns: int | None, max_actions_per_turn: int | None) -> int:
    return 1 if max_turns is None else min(max_actions, max_actions_per_turn or max_actions)


@dataclass(slots=True)
class _Values:
    """Success probabilities by turns left, actions left and cell, computed on first use."""

    alive: Array  # [action, from, to], the chance to be on open ice
    goal: Array  # [action, from], the chance to have arrived
    longest: int  # actions in a turn
    solved: dict[tuple[int | None, int], Array]

    def value(self, turns: int | None, actions: int) -> Array:
        """Return the best success probability of every cell."""
        if turns is not None:
            # Turns without actions and actions without turns are useless, so equal positions share an entry.
            turns = min(turns, actions)
            actions = min(actions, turns * self.longest)
        if (turns, actions) not in self.solved:
            self.solved[turns, actions] = self._options(turns, actions).max(axis=0)
        return self.solved[turns, actions]

    def best(self, turns: int | None, actions: int, cell: int) -> tuple[int, ...]:
        """Return a best sequence of actions from a cell; among equals one that needs the fewest actions and turns.

        Otherwise a demonstration on ice that is not slippery could take as long as the limits allow.
        """
        least = self.value(turns, actions)[cell] - 1e-12
        while actions > 0 and self.value(turns, actions - 1)[cell] >= least:
            actions -= 1
        while turns and self.value(turns - 1, actions)[cell] >= least:
            turns -= 1
        # Sequences are ordered by length, so the first best one is a shortest one. Its number, counted within its
        # length, has the actions as digits to the base 4.
        options = self._options(turns, actions)[:, cell]
        number = int(np.argmax(options > options.max() - 1e-12))
        length = 1
        while number >= 4**length:
            number -= 4**length
            length += 1
        return tuple(number // 4**power % 4 for power in reversed(range(length)))

    def _options(self, turns: int | None, actions: int) -> Array:
        """Return the success probability of every sequence of actions that the next turn may hold, from every cell."""
        cells = self.goal.shape[1]
        if actions <= 0 or turns == 0:
            return np.zeros((4, cells))
        # All sequences of a turn are evaluated together: `values` has a row per sequence, and 4**length rows in all.
        options = []
        for length in range(1, min(self.longest, actions) + 1):
            # Backwards through the turn: each pass puts every action before every sequence so far.
            values = self.value(None if turns is None else turns - 1, actions - length)[None]
            for _ in range(length):
                values = (self.goal[:, None] + values @ self.alive.transpose(0, 2, 1)).reshape(-1, cells)
            options.append(values)
        return np.concatenate(options)


@lru_cache(maxsize=256)
def _values(desc: tuple[str, ...], ice: Ice, longest: int) -> _Values:
    if 4**longest > MAX_SEQUENCES:
        raise ConfigError(
            f"wanted at most 6 actions in a turn for the exact optimum, got {longest}: set max_actions_per_turn"
        )
    return _Values(*_dynamics(desc, ice), longest, {})


def _dynamics(desc: tuple[str, ...], ice: Ice) -> tuple[Array, Array]:
    """Return, per action and cell, the chance to stand on each open cell next, and to arrive at a goal."""
    step = step_chances(desc, ice)
    letters = np.array(list("".join(desc)))
    is_open = ~np.isin(letters, ("G", "H"))
    # Mass that falls into a hole is in neither array, so it contributes no success.
    alive: Array = step * is_open[:, None] * is_open
    goal: Array = step[:, :, letters == "G"].sum(axis=2) * is_open
    return alive, goal
