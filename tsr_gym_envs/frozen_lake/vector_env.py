"""FrozenLake in batches: `gym.make_vec("tsr/FrozenLake-v0")`, arrays and not text, as compiled code plays it.

``vectorization_mode="sync"`` or ``"async"`` gives the text that `gym.make` gives.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from tsr_gym import ConfigError
from tsr_gym_envs.batch_env import ALL, BatchEnv
from tsr_gym_envs.columns import BatchStep, Column, Field
from tsr_gym_envs.frozen_lake.arrays import LETTER_CODES, TILES, tile_codes
from tsr_gym_envs.frozen_lake.batch import neighbours, on_goal, slide_all, start_all
from tsr_gym_envs.frozen_lake.discrete_env import check_fits, observation_space
from tsr_gym_envs.frozen_lake.lakes import Lakes
from tsr_gym_envs.frozen_lake.observation import OBSERVATIONS, grid
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings, make_settings
from tsr_gym_envs.tiles import ZOOM, as_array, picture


class FrozenLakeVectorEnv(BatchEnv):
    """Many FrozenLakes in arrays, each exactly the discrete form with its seed; see `FrozenLakeEnv` and `BatchEnv`.

    New maps cost what they cost alone. Where their number is known (`desc`, `map_name` or `num_levels`), all are made
    ready at first, and new episodes begin in compiled code.
    """

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
        """Whether actions have outcomes that are left to chance, the slips."""
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
    chosen = make_settings(preset, {"action_type": "discrete", **settings})
    if chosen.action_type != "discrete":
        raise ConfigError("a batch takes discrete actions; for text actions pass vectorization_mode='sync' or 'async'")
    return FrozenLakeVectorEnv(num_envs, chosen, autoreset_mode=autoreset_mode, render_mode=render_mode)
