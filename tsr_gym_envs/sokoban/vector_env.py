"""Sokoban in batches: `gym.make_vec("tsr/Sokoban-v0")`, arrays and not text, as compiled code plays it.

``vectorization_mode="sync"`` or ``"async"`` gives the text that `gym.make` gives.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from tsr_gym import ConfigError
from tsr_gym_envs.batch_env import ALL, BatchEnv
from tsr_gym_envs.columns import BatchStep, Column, Field
from tsr_gym_envs.sokoban.arrays import BOX, BOX_ON_GOAL, GOAL, PLAYER_ON_GOAL, TILES, WALL, tile_codes
from tsr_gym_envs.sokoban.batch import push_all, start_all
from tsr_gym_envs.sokoban.discrete_env import board_shape, check_fits
from tsr_gym_envs.sokoban.observation import OBSERVATIONS, grid
from tsr_gym_envs.sokoban.rooms import Rooms
from tsr_gym_envs.sokoban.rules import Level, SokobanState
from tsr_gym_envs.sokoban.settings import SokobanSettings, make_settings
from tsr_gym_envs.tiles import ZOOM, as_array, picture, space_of


class SokobanVectorEnv(BatchEnv):
    """Many Sokobans in arrays, each exactly the discrete form with its seed; see `SokobanEnv` and `BatchEnv`.

    New rooms cost what they cost alone, up to milliseconds for each. Where their number is known (`level`, one file of
    `levels`, or `num_levels`), all are made ready at first, new episodes begin in compiled code, and steps are many
    times as fast.

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
        pool = [self._packed(self._rooms.room(number)) for number in range(self._rooms.size or 0)]
        self._pool_boards = np.array([board for board, _ in pool], np.uint8)
        self._pool_places = np.array([places for _, places in pool], np.int32)
        self._is_pooled = bool(pool)

    @property
    def draws_noise(self) -> bool:
        """Whether actions have outcomes that are left to chance: never."""
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
    chosen = make_settings(preset, {"action_type": "discrete", **settings})
    if chosen.action_type != "discrete":
        raise ConfigError("a batch takes discrete actions; for text actions pass vectorization_mode='sync' or 'async'")
    return SokobanVectorEnv(num_envs, chosen, autoreset_mode=autoreset_mode, render_mode=render_mode)
