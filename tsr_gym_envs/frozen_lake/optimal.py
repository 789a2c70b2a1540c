"""The exact optimum of FrozenLake under limits, by dynamic programming: bars to hold results against, and an oracle."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tsr_gym import ConfigError
from tsr_gym_envs.frozen_lake.rules import ACTIONS, DEFAULT_SUCCESS_RATE, Ice, check_map
from tsr_gym_envs.frozen_lake.values import step_chances

Array = NDArray[np.float64]
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
    return float(values.value(max_turns, max_actions)[_starts(rows)].mean())


def random_success(
    desc: list[str] | tuple[str, ...], *, success_rate: float = DEFAULT_SUCCESS_RATE, max_actions: int = 10
) -> float:
    """Return the success probability of uniformly random actions on a map.

    Raises:
        InvalidLevel: The map is malformed.
    """
    rows = check_map(tuple(desc))
    alive, goal = _dynamics(rows, Ice(success_rate))
    value = np.zeros(alive.shape[1])
    for _ in range(max_actions):
        value = (goal + alive @ value).mean(axis=0)
    return float(value[_starts(rows)].mean())


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
    """Success probabilities by turns left, actions left and cell, filled in as they are asked for."""

    alive: Array  # [action, from, to], the chance to be on open ice
    goal: Array  # [action, from], the chance to have arrived
    longest: int  # actions in a turn
    known: dict[tuple[int | None, int], Array]

    def value(self, turns: int | None, actions: int) -> Array:
        """Return the best success probability of every cell."""
        if turns is not None:
            # Turns without actions, and actions without turns, are of no use.
            turns = min(turns, actions)
            actions = min(actions, turns * self.longest)
        if (turns, actions) not in self.known:
            self.known[turns, actions] = self._options(turns, actions).max(axis=0)
        return self.known[turns, actions]

    def best(self, turns: int | None, actions: int, cell: int) -> tuple[int, ...]:
        """Return a best sequence of actions from a cell; among equals one that needs the fewest actions and turns.

        Without that, a demonstration on ice that is not slippery would dawdle as long as the limits allow.
        """
        wanted = self.value(turns, actions)[cell] - 1e-12
        while actions > 0 and self.value(turns, actions - 1)[cell] >= wanted:
            actions -= 1
        while turns and self.value(turns - 1, actions)[cell] >= wanted:
            turns -= 1
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
    alive: Array = step * is_open[:, None] * is_open
    goal: Array = step[:, :, letters == "G"].sum(axis=2) * is_open
    return alive, goal


def _starts(desc: tuple[str, ...]) -> list[int]:
    return [cell for cell, letter in enumerate("".join(desc)) if letter == "S"]
