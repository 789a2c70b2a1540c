"""FrozenLake in batches, ``gym.make_vec("tsr/FrozenLake-v0")``: array observations, stepped in compiled code.

``vectorization_mode="sync"`` or ``"async"`` gives the text observations of ``gym.make``.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from tsr_gym import ConfigError
from tsr_gym_envs.batch_env import ALL, BatchEnv
from tsr_gym_envs.columns import NUM_ACTIONS, BatchStep, Column, Field
from tsr_gym_envs.compiled import Bytes, Flags, Floats, Longs, Streams, below, njit, uniform
from tsr_gym_envs.frozen_lake.discrete_env import (
    FIRST_FACTS,
    GOAL,
    ICE,
    LETTER_CODES,
    STANDING,
    TILES,
    check_fits,
    observation_space,
    tile_codes,
)
from tsr_gym_envs.frozen_lake.lakes import Lakes
from tsr_gym_envs.frozen_lake.rules import OBSERVATIONS, STEPS, FrozenLakeState, grid
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings, make_settings
from tsr_gym_envs.tiles import ZOOM, as_array, picture


@njit
def slide_all(
    boards: Bytes,
    players: Longs,
    streams: Streams,
    actions: Longs,
    resting: Flags,
    neighbour: Longs,
    cumulative: Floats,
    chances: Floats,
    pay: Floats,
    rewards: Floats,
    ended: Flags,
    effective: Flags,
    probabilities: Floats,
) -> None:
    """Take one action on every lake that is not resting.

    Args:
        boards: `[N, C]` codes of the cells; changed in place.
        players: `[N]` the player's cell; changed in place.
        streams: `[N, 6]` random streams; advanced where the ice is slippery.
        actions: `[N]` indices into `ACTIONS`.
        resting: `[N]` True for lakes that do not change.
        neighbour: `[C, 4]` the cell that a direction leads to, the same cell at the rim.
        cumulative: `[3]` cumulative chances of a turn to one side, straight on, and a turn to the other side; empty
            where the ice is not slippery.
        chances: `[3]` the same chances each for itself, or `[1]` where the ice is not slippery.
        pay: `[3]` rewards by the code of the cell: ice, hole, goal.
        rewards: `[N]` becomes the rewards of the actions.
        ended: `[N]` becomes whether the player stands in a hole or on the goal.
        effective: `[N]` becomes whether the player moved.
        probabilities: `[N]` becomes the probability of the outcome.
    """
    for env in range(boards.shape[0]):
        if resting[env]:
            continue
        direction, turn = actions[env], 0
        if cumulative.size:
            drawn = uniform(streams, env)
            # The number of cumulative chances at or below the drawn number is the index of the outcome, as in
            # Gymnasium's `categorical_sample`: counter-clockwise, straight on, clockwise.
            turn = (cumulative[0] <= drawn) + (cumulative[1] <= drawn) + (cumulative[2] <= drawn)
            # Rounding can leave the last sum just below 1, and then Gymnasium takes the first.
            turn = turn if turn < 3 else 0
            direction = (direction + turn + 3) & 3
        here = players[env]
        there = neighbour[here, direction]
        boards[env, here] -= STANDING
        # The player is taken off its cell before the target is read, because both are the same cell at the rim.
        lies = boards[env, there]
        boards[env, there] = lies + STANDING
        players[env] = there
        rewards[env] = pay[lies]
        ended[env] = lies != ICE
        effective[env] = here != there
        probabilities[env] = chances[turn]


@njit
def mask_all(
    boards: Bytes, players: Longs, neighbour: Longs, cumulative: Floats, chances: Floats, masks: Bytes
) -> None:
    """Write which actions can move the players.

    Args:
        boards: As in `slide_all`.
        players: As in `slide_all`.
        neighbour: As in `slide_all`.
        cumulative: As in `slide_all`.
        chances: As in `slide_all`.
        masks: `[N, 4]` becomes 1 for actions that can move the player; all 1 where none can or the episode is over.
    """
    for env in range(boards.shape[0]):
        here, num = players[env], 0
        for action in range(4):
            moves = False
            if cumulative.size:
                for turn in range(3):
                    moves |= chances[turn] > 0 and neighbour[here, (action + turn + 3) & 3] != here
            else:
                moves = neighbour[here, action] != here
            masks[env, action] = moves
            num += moves
        if num == 0 or boards[env, here] != ICE + STANDING:
            masks[env] = 1


@njit
def start_all(
    envs: Longs, streams: Streams, maps: Bytes, own_maps: Bytes, codes: Bytes, boards: Bytes, players: Longs
) -> None:
    """Put environments at a start of maps, both chosen by their streams.

    Args:
        envs: Numbers of the environments.
        streams: `[N, 6]` random streams; advanced.
        maps: `[P, C]` letters of the maps to choose from.
        own_maps: `[N, C]`; the rows of `envs` become maps.
        codes: `[128]` the code of every letter.
        boards: `[N, C]`; becomes the codes of the cells, with the player.
        players: `[N]`; becomes the player's cell.
    """
    start = ord("S")
    for env in envs:
        letters = maps[below(streams, env, maps.shape[0])]
        own_maps[env] = letters
        num_starts = 0
        for cell in range(letters.size):
            boards[env, cell] = codes[letters[cell]]
            num_starts += letters[cell] == start
        # As in the single environment, the start is the cell number `int(uniform * num_starts)` among the starts.
        before = int(uniform(streams, env) * num_starts)
        for cell in range(letters.size):
            if letters[cell] == start:
                if before == 0:
                    players[env] = cell
                before -= 1
        boards[env, players[env]] += STANDING


@njit
def on_goal(boards: Bytes, players: Longs) -> Flags:
    """Return whether the players stand on a goal, `[N]`."""
    arrived = np.empty(players.size, np.bool_)
    for env in range(players.size):
        arrived[env] = boards[env, players[env]] == GOAL + STANDING
    return arrived


def neighbours(shape: tuple[int, int]) -> Longs:
    """Return `[C, 4]`, the cell that each direction leads to, the same cell at the rim."""
    rows, columns = np.divmod(np.arange(shape[0] * shape[1])[:, None], shape[1])
    down, right = np.array(STEPS).T
    cells: Longs = np.clip(rows + down, 0, shape[0] - 1) * shape[1] + np.clip(columns + right, 0, shape[1] - 1)
    return cells


class FrozenLakeVectorEnv(BatchEnv):
    """Many FrozenLakes in arrays, each exactly the discrete form with its seed; see `FrozenLakeEnv` and `BatchEnv`.

    A new map costs as much as in a single environment. If the number of maps is fixed (`desc`, `map_name` or
    `num_levels`), all maps are made first, and new episodes begin in compiled code.
    """

    first_facts = FIRST_FACTS

    def __init__(
        self,
        num_envs: int,
        settings: FrozenLakeSettings,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self._lakes = Lakes(settings)
        self._shape = self._lakes.shape
        size = self._shape[0] * self._shape[1]
        super().__init__(
            num_envs,
            settings,
            layout=(Field("maps", np.uint8, size), Field("boards", np.uint8, size), Field("players", np.int64)),
            single_observation_space=observation_space(settings, self._shape),
            autoreset_mode=autoreset_mode,
            render_mode=render_mode,
        )
        self._describe = OBSERVATIONS.get(settings.obs_type)
        goal, hole, frozen = settings.reward_schedule
        # In the order of the tile codes ice, hole, goal, so that a code is the index of its reward.
        self._pay = np.array((frozen, hole, goal), np.float64)
        self._neighbours = neighbours(self._shape)
        rate = settings.ice.success_rate
        chances = ((1.0 - rate) / 2.0, rate, (1.0 - rate) / 2.0) if settings.is_slippery else (1.0,)
        self._chances = np.array(chances)
        self._cumulative = np.array(list(accumulate(chances)) if settings.is_slippery else [], np.float64)
        pool = [_letters(self._lakes.map(number)) for number in range(self._lakes.size or 0)]
        self._pool = np.array(pool, np.uint8)
        self._is_pooled = bool(pool)

    @property
    def draws_noise(self) -> bool:
        """Whether actions have random outcomes, the slips."""
        return bool(self.settings.is_slippery)

    def observe(self, envs: Column | slice = ALL) -> Any:
        """Return the current observations, all by default: an array, or a text for each environment."""
        if self._describe is not None:
            return tuple(self._describe(self.state(env)) for env in self._all_numbers[envs].tolist())
        if self.settings.obs_type == "discrete":
            return self._players[envs].copy()
        return as_array(self._boards[envs].reshape(-1, *self._shape), self.settings.obs_type, TILES)

    def state(self, env: int) -> FrozenLakeState:
        """Return the position of one environment."""
        letters, width = self._maps[env].tobytes().decode(), self._shape[1]
        rows = (letters[start : start + width] for start in range(0, len(letters), width))
        return FrozenLakeState(tuple(rows), int(self._players[env]))

    def _bind(self, columns: Mapping[str, Column]) -> None:
        self._maps, self._boards, self._players = columns["maps"], columns["boards"], columns["players"]

    def _draw(self, envs: Column) -> None:
        start_all(envs, self._streams, self._pool, self._maps, LETTER_CODES, self._boards, self._players)

    def _start(self, env: int, rng: np.random.Generator, seed: int | None, options: dict[str, Any]) -> None:
        state = self._lakes.start(rng, options)
        check_fits(state, self._shape)
        self._maps[env] = _letters(state.desc)
        self._boards[env] = tile_codes(state).ravel()
        self._players[env] = state.position

    def _play(self, actions: Column, resting: Column) -> BatchStep:
        outcome = BatchStep.nothing(self.num_envs)
        outcome.facts["prob"] = np.zeros(self.num_envs)
        slide_all(
            self._boards,
            self._players,
            self._streams,
            actions,
            resting,
            self._neighbours,
            self._cumulative,
            self._chances,
            self._pay,
            outcome.rewards,
            outcome.terminated,
            outcome.facts["action_is_effective"],
            outcome.facts["prob"],
        )
        return outcome

    def _success(self) -> Column:
        return on_goal(self._boards, self._players)

    def _masks(self) -> Column:
        masks = np.empty((self.num_envs, NUM_ACTIONS), np.uint8)
        mask_all(self._boards, self._players, self._neighbours, self._cumulative, self._chances, masks)
        return masks.view(np.int8)

    def _frame(self, env: int) -> Any:
        state = self.state(env)
        return grid(state) if self.render_mode == "ansi" else picture(tile_codes(state), TILES, ZOOM)


def _letters(desc: tuple[str, ...]) -> Column:
    return np.frombuffer("".join(desc).encode(), np.uint8)


def make_vec(
    num_envs: int = 1,
    preset: str = "paper",
    render_mode: str | None = None,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    **settings: Any,
) -> FrozenLakeVectorEnv:
    """Make the environment behind ``gym.make_vec("tsr/FrozenLake-v0", ...)``.

    Args:
        num_envs: How many environments.
        preset: ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"``, ``"rgb_array"`` or None.
        autoreset_mode: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
        settings: Fields of `FrozenLakeSettings`; they win over the preset. Actions are discrete.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidLevel: The map is malformed.
        MissingExtra: numba is not installed.
    """
    config = make_settings(preset, {"action_type": "discrete", **settings})
    if config.action_type != "discrete":
        raise ConfigError("a batch takes discrete actions; for text actions pass vectorization_mode='sync' or 'async'")
    return FrozenLakeVectorEnv(num_envs, config, autoreset_mode=autoreset_mode, render_mode=render_mode)
