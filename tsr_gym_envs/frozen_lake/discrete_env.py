"""FrozenLake for ordinary reinforcement learning: numbered actions, observations that are arrays (or text)."""

from typing import Any

import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.error import InvalidAction
from gymnasium.spaces import Discrete

from tsr_gym import ConfigError, Limits, StateEnv, Step
from tsr_gym_envs.frozen_lake.arrays import TILES, tile_codes
from tsr_gym_envs.frozen_lake.fewest_steps import fewest_steps
from tsr_gym_envs.frozen_lake.lakes import Lakes
from tsr_gym_envs.frozen_lake.observation import OBSERVATIONS, grid
from tsr_gym_envs.frozen_lake.rules import ACTIONS, FrozenLakeState, moves, state_key
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings
from tsr_gym_envs.tiles import RENDERING, ZOOM, as_array, picture, space_of


class FrozenLakeDiscreteEnv(StateEnv[FrozenLakeState, Any, int]):
    """`FrozenLakeEnv` with one numbered action a step; see there."""

    metadata = RENDERING

    def __init__(self, settings: FrozenLakeSettings, *, render_mode: str | None = None) -> None:
        super().__init__(settings, limits=Limits(max_actions=settings.max_actions), render_mode=render_mode)
        self.settings = settings
        self.draws_noise = settings.is_slippery
        self._ice = settings.ice
        self._lakes = Lakes(settings)
        self._describe = OBSERVATIONS.get(settings.obs_type)
        self.observation_space: Any = observation_space(settings, self._lakes.shape)
        self.action_space: Any = Discrete(len(ACTIONS))

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> FrozenLakeState:
        """Return a start, on the map that the options give or number, or else one that is drawn."""
        state = self._lakes.start(rng, options)
        check_fits(state, self._lakes.shape)
        return state

    def transition(self, state: FrozenLakeState, action: int, rng: np.random.Generator) -> Step:
        """Return where one numbered action leads on this ice."""
        if not 0 <= action < len(ACTIONS):
            raise InvalidAction(f"wanted an action from 0 to 3 for {ACTIONS}, got {action}")
        move = moves(state.desc, self._ice, self.settings.is_slippery)[state.position][action]
        chance, position, reward, ended = move.draw(rng.random()) if self.draws_noise else move.outcomes[0]
        facts = {"prob": chance, "action_is_effective": position != state.position}
        return Step(FrozenLakeState(state.desc, position), float(reward), ended, facts)

    def observe(self, state: FrozenLakeState) -> Any:
        """Return the position in the form of `obs_type`."""
        if self._describe is not None:
            return self._describe(state)
        if self.settings.obs_type == "discrete":
            return state.position
        return as_array(tile_codes(state), self.settings.obs_type, TILES)

    def state_key(self, state: FrozenLakeState) -> bytes:
        """Return the bytes of map and position; a start cell counts as ice, which it is once the episode runs."""
        return state_key(state)

    def is_success(self, state: FrozenLakeState) -> bool:
        """Return whether the player stands on a goal."""
        return state.cell == "G"

    def dead_end(self, state: FrozenLakeState) -> str | None:
        """Return what keeps the player from every goal for good: a hole, or holes all around."""
        return None if fewest_steps(state) is not None else "hole" if state.cell == "H" else "no way"

    def fewest_actions(self, state: FrozenLakeState) -> int | None:
        """Return the length of a shortest way to a goal."""
        return fewest_steps(state)

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Return the position as a picture, or as text where `render_mode` is ``"ansi"``."""
        if self.render_mode == "rgb_array":
            return picture(tile_codes(self.state), TILES, ZOOM)
        return grid(self.state) if self.render_mode == "ansi" else None

    def _facts(self, state: FrozenLakeState) -> dict[str, Any]:
        return {"success": state.cell == "G"}


def observation_space(settings: FrozenLakeSettings, shape: tuple[int, int]) -> Any:
    """Return the space of one observation."""
    if settings.obs_type == "discrete":
        return Discrete(shape[0] * shape[1])
    return space_of(settings.obs_type, shape, len(TILES))


def check_fits(state: FrozenLakeState, shape: tuple[int, int]) -> None:
    """Raise ConfigError where a map is not of the size that observations have."""
    came = (len(state.desc), len(state.desc[0]))
    if came != shape:
        raise ConfigError(f"wanted a map of {shape[0]}x{shape[1]}, got {came[0]}x{came[1]}: set desc or size to match")
