"""Sokoban in batches, ``gym.make_vec("tsr/Sokoban-v0")``: array observations, stepped in compiled code.

``vectorization_mode="sync"`` or ``"async"`` gives the text observations of ``gym.make``.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from tsr_gym import ConfigError
from tsr_gym_envs.batch_env import ALL, BatchEnv
from tsr_gym_envs.columns import NUM_ACTIONS, BatchStep, Column, Field
from tsr_gym_envs.compiled import Bytes, Flags, Floats, Ints, Longs, Streams, below, njit
from tsr_gym_envs.sokoban.discrete_env import (
    BOX,
    BOX_ON_GOAL,
    FIRST_FACTS,
    FLOOR,
    GOAL,
    PLAYER,
    PLAYER_ON_GOAL,
    TILES,
    WALL,
    board_shape,
    check_fits,
    tile_codes,
)
from tsr_gym_envs.sokoban.rooms import Rooms
from tsr_gym_envs.sokoban.rules import OBSERVATIONS, Level, SokobanState, grid
from tsr_gym_envs.sokoban.settings import SokobanSettings, make_settings
from tsr_gym_envs.tiles import ZOOM, as_array, picture, space_of

# What a cell's code gains when the player steps on it.
_STANDING = PLAYER - FLOOR
# Number of codes that a cell ahead of the player can have.
_AHEAD = BOX + 1


def _make_table() -> NDArray[np.uint32]:
    """Return the rules as a table: branches would be mispredicted by the processor on random actions.

    The index is the code ahead and, if that is a box, the code behind it, else the code ahead again. Each entry is four
    bytes, lowest first: new code behind, new code ahead, whether the player moves, how many more boxes are on goals.
    """
    table = np.zeros((_AHEAD, _AHEAD, 4), np.int8)
    for ahead in range(_AHEAD):
        for behind in range(_AHEAD):
            table[ahead, behind] = behind, ahead, 0, 0
            if ahead >= BOX_ON_GOAL and behind in (FLOOR, GOAL):
                onto, off = behind == GOAL, ahead == BOX_ON_GOAL
                table[ahead, behind] = BOX_ON_GOAL if onto else BOX, PLAYER + off, 1, onto - off
        if ahead in (FLOOR, GOAL):
            table[ahead, ahead] = ahead + _STANDING, ahead + _STANDING, 1, 0
    return table.view("<u4").ravel().astype(np.uint32)


_TABLE = _make_table()


@njit
def push_all(
    boards: Bytes,
    places: Ints,
    actions: Longs,
    resting: Flags,
    step: Longs,
    pay: Floats,
    rewards: Floats,
    solved: Flags,
    effective: Flags,
) -> None:
    """Take one action on every board that is not resting.

    Args:
        boards: `[N, C]` codes of the cells; changed in place.
        places: `[N, 4]` the player's cell, boxes off goals, and two numbers more; changed in place.
        actions: `[N]` indices into `ACTIONS`.
        resting: `[N]` True for boards that do not change.
        step: `[4]` the number that a direction adds to a cell.
        pay: `[3]` rewards of an action, a box that comes onto a goal, and all boxes on goals.
        rewards: `[N]` becomes the rewards of the actions.
        solved: `[N]` becomes whether all boxes are on goals.
        effective: `[N]` becomes whether the action changed the board.
    """
    # Unsigned indices spare the check for negative ones, a tenth of the time.
    cells = boards.reshape(-1)
    for env in range(boards.shape[0]):
        if resting[env]:
            continue
        # The board of environment `env` begins at `corner` of the flat array; a flat index is cheaper than two indices.
        corner, here, offset = env * boards.shape[1], places[env, 0], step[actions[env]]
        # Without a box ahead, `beyond` is the cell ahead itself: both writes below then go to the same cell, and the
        # second one, which holds the new code ahead, must come last.
        target = here + offset
        ahead = cells[np.uint64(corner + target)]
        is_box = ahead >= BOX_ON_GOAL
        beyond = target + offset * is_box
        behind = cells[np.uint64(corner + beyond)]
        entry = _TABLE[np.uint64(ahead) * np.uint64(_AHEAD) + np.uint64(behind)]
        moves, gained = np.int64(entry >> 16 & 1), np.int64(np.int8(entry >> 24))
        cells[np.uint64(corner + beyond)] = np.uint8(entry)
        cells[np.uint64(corner + target)] = np.uint8(entry >> 8)
        cells[np.uint64(corner + here)] -= np.uint8(_STANDING * moves)
        left = places[env, 1] - gained
        places[env, 0], places[env, 1] = here + offset * moves, left
        rewards[env] = pay[0] + gained * pay[1] + (left == 0 and moves and is_box) * pay[2]
        solved[env] = left == 0
        effective[env] = moves != 0


@njit
def mask_all(boards: Bytes, places: Ints, step: Longs, masks: Bytes) -> None:
    """Write which actions change the boards.

    Args:
        boards: As in `push_all`.
        places: As in `push_all`.
        step: As in `push_all`.
        masks: `[N, 4]` becomes 1 for actions that change the board; all 1 where none does.
    """
    cells = boards.reshape(-1)
    for env in range(boards.shape[0]):
        here, num = env * boards.shape[1] + places[env, 0], 0
        for action in range(4):
            target = here + step[action]
            onto = target + step[action] * (cells[np.uint64(target)] >= BOX_ON_GOAL)
            code = cells[np.uint64(onto)]
            masks[env, action] = (code == FLOOR) | (code == GOAL)
            num += masks[env, action]
        if num == 0:
            masks[env] = 1


@njit
def start_all(envs: Longs, streams: Streams, rooms: Bytes, room_places: Ints, boards: Bytes, places: Ints) -> None:
    """Put environments at the start of rooms that their streams choose.

    Args:
        envs: Numbers of the environments.
        streams: `[N, 6]` random streams; advanced.
        rooms: `[P, C]` boards to choose from.
        room_places: `[P, 4]` the rows of `places` for these boards.
        boards: `[N, C]`; the rows of `envs` become rooms.
        places: `[N, 4]`; see `push_all`.
    """
    for env in envs:
        room = below(streams, env, rooms.shape[0])
        boards[env] = rooms[room]
        places[env] = room_places[room]


class SokobanVectorEnv(BatchEnv):
    """Many Sokobans in arrays, each exactly the discrete form with its seed; see `SokobanEnv` and `BatchEnv`.

    A new room costs as much as in a single environment, up to milliseconds. If the number of rooms is fixed (`level`,
    one file of `levels`, or `num_levels`), all rooms are made first, and new episodes begin in compiled code, which
    makes steps many times as fast.

    >>> import gymnasium as gym, tsr_gym
    >>> env = gym.make_vec("tsr/Sokoban-v0", num_envs=4, num_levels=100)
    >>> boards, infos = env.reset(seed=0)
    >>> boards.shape
    (4, 6, 6)
    >>> before = env.snapshot()
    >>> boards, rewards, terminated, truncated, infos = env.step([0, 1, 2, 3])
    >>> env.restore(before)
    >>> env.fork(0, 2).tolist()
    [1, 2]
    """

    first_facts = FIRST_FACTS

    def __init__(
        self,
        num_envs: int,
        settings: SokobanSettings,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self._rooms = Rooms(settings)
        self._shape = board_shape(settings, self._rooms)
        super().__init__(
            num_envs,
            settings,
            layout=(Field("boards", np.uint8, self._shape[0] * self._shape[1]), Field("places", np.int32, 4)),
            single_observation_space=space_of(settings.obs_type, self._shape, len(TILES)),
            autoreset_mode=autoreset_mode,
            render_mode=render_mode,
        )
        self._describe = OBSERVATIONS.get(settings.obs_type)
        width = self._shape[1]
        self._step = np.array((-width, width, -1, 1))
        self._pay = np.array((settings.reward_step, settings.reward_box, settings.reward_done), np.float64)
        # With a fixed number of rooms all are packed once, and a reset is a copy of two rows in compiled code.
        pool = [self._packed(self._rooms.room(number)) for number in range(self._rooms.size or 0)]
        self._pool_boards = np.array([board for board, _ in pool], np.uint8)
        self._pool_places = np.array([places for _, places in pool], np.int32)
        self._is_pooled = bool(pool)

    @property
    def draws_noise(self) -> bool:
        """Whether actions have random outcomes: never."""
        return False

    def observe(self, envs: Column | slice = ALL) -> Any:
        """Return the current observations, all by default: an array, or a text for each environment."""
        if self._describe is not None:
            return tuple(self._describe(self.state(env)) for env in self._all_numbers[envs].tolist())
        return as_array(self._boards[envs].reshape(-1, *self._shape), self.settings.obs_type, TILES)

    def state(self, env: int) -> SokobanState:
        """Return the position of one environment."""
        player, _, height, width = self._places[env].tolist()
        codes = self._boards[env].reshape(self._shape)[:height, :width].ravel()
        walls, goals, boxes = (
            int.from_bytes(np.packbits(np.isin(codes, kinds), bitorder="little").tobytes(), "little")
            for kinds in (WALL, (GOAL, BOX_ON_GOAL, PLAYER_ON_GOAL), (BOX, BOX_ON_GOAL))
        )
        # The player's cell is numbered on the padded board; the level has its own width.
        row, column = divmod(player, self._shape[1])
        return SokobanState(_level(height, width, walls, goals), boxes, row * width + column)

    def _bind(self, columns: Mapping[str, Column]) -> None:
        # Places are the player's cell, the number of boxes off goals, and the rows and columns of the room.
        self._boards, self._places = columns["boards"], columns["places"]

    def _draw(self, envs: Column) -> None:
        start_all(envs, self._streams, self._pool_boards, self._pool_places, self._boards, self._places)

    def _start(self, env: int, rng: np.random.Generator, seed: int | None, options: dict[str, Any]) -> None:
        state = self._rooms.start(rng, self._rooms.options_of(seed, options))
        self._boards[env], self._places[env] = self._packed(state)

    def _play(self, actions: Column, resting: Column) -> BatchStep:
        outcome = BatchStep.nothing(self.num_envs)
        push_all(
            self._boards,
            self._places,
            actions,
            resting,
            self._step,
            self._pay,
            outcome.rewards,
            outcome.terminated,
            outcome.facts["action_is_effective"],
        )
        return outcome

    def _success(self) -> Column:
        solved: Column = self._places[:, 1] == 0
        return solved

    def _masks(self) -> Column:
        masks = np.empty((self.num_envs, NUM_ACTIONS), np.uint8)
        mask_all(self._boards, self._places, self._step, masks)
        return masks.view(np.int8)

    def _frame(self, env: int) -> Any:
        if self.render_mode == "ansi":
            return grid(self.state(env))
        return picture(self._boards[env].reshape(self._shape), TILES, ZOOM)

    def _packed(self, state: SokobanState) -> tuple[Column, tuple[int, int, int, int]]:
        """Return a room's row of `_boards` and of `_places`."""
        check_fits(state, self._shape)
        level = state.level
        row, column = divmod(state.player, level.width)
        misplaced = (state.boxes & ~level.goals).bit_count()
        places = (row * self._shape[1] + column, misplaced, level.height, level.width)
        return tile_codes(state, self._shape).ravel(), places


@lru_cache(maxsize=1024)
def _level(height: int, width: int, walls: int, goals: int) -> Level:
    return Level(height, width, walls, goals)


def make_vec(
    num_envs: int = 1,
    preset: str = "paper",
    render_mode: str | None = None,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    **settings: Any,
) -> SokobanVectorEnv:
    """Make the environment behind ``gym.make_vec("tsr/Sokoban-v0", ...)``.

    Args:
        num_envs: How many environments.
        preset: ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"``, ``"rgb_array"`` or None.
        autoreset_mode: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
        settings: Fields of `SokobanSettings`; they win over the preset. Actions are discrete.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidLevel: `level` or `levels` is malformed.
        MissingExtra: numba is not installed.
    """
    config = make_settings(preset, {"action_type": "discrete", **settings})
    if config.action_type != "discrete":
        raise ConfigError("a batch takes discrete actions; for text actions pass vectorization_mode='sync' or 'async'")
    return SokobanVectorEnv(num_envs, config, autoreset_mode=autoreset_mode, render_mode=render_mode)
