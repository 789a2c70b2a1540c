"""FrozenLake for ordinary reinforcement learning: numbered actions, and observations as numbers, arrays or text."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.error import InvalidAction
from gymnasium.spaces import Discrete

from tsr_gym import ConfigError, Limits, StateEnv, Step
from tsr_gym_envs.frozen_lake.lakes import Lakes
from tsr_gym_envs.frozen_lake.rules import ACTIONS, OBSERVATIONS, FrozenLakeState, fewest_steps, grid, moves, state_key
from tsr_gym_envs.frozen_lake.settings import FrozenLakeSettings
from tsr_gym_envs.tiles import RENDERING, ZOOM, Codes, as_array, draw_tiles, picture, space_of

# Tile codes.
ICE, HOLE, GOAL, PLAYER, PLAYER_IN_HOLE, PLAYER_ON_GOAL = range(6)
# The player's tile is the code of the cell beneath plus this.
STANDING = 3
# The code of every letter of a map.
LETTER_CODES = np.zeros(128, np.uint8)
LETTER_CODES[[ord(letter) for letter in "SFHG"]] = ICE, ICE, HOLE, GOAL
LETTER_CODES.setflags(write=False)
_PALETTE = {
    ".": (216, 236, 248),
    ",": (180, 212, 236),
    "d": (34, 74, 122),
    "D": (20, 44, 80),
    "g": (222, 176, 52),
    "G": (156, 112, 24),
    "s": (240, 196, 160),
    "j": (196, 64, 64),
    "e": (30, 30, 46),
}
TILES = draw_tiles(
    _PALETTE,
    "........ ..,..... .,....,. .....,.. ........ ..,..... .,....,. ........",
    "........ ..dddd.. .dDDDDd. dDDDDDDd dDDDDDDd .dDDDDd. ..dddd.. ........",
    "........ .GGGGGG. .GggggG. .GGGGGG. .GggggG. .GggggG. .GGGGGG. ........",
    "........ ..ssss.. ..eses.. ..ssss.. .jjjjjj. .sjjjjs. ..jjjj.. ..e..e..",
    "........ ..dddd.. .dssssd. dDesesDd dDssssDd .djjjjd. ..dddd.. ........",
    "........ ..ssss.. ..eses.. .Gssss.. .jjjjjj. .sjjjjs. .GjjjjG. .Ge..eG.",
)


def tile_codes(state: FrozenLakeState) -> Codes:
    """Return the board `[H, W]`."""
    codes = LETTER_CODES[np.frombuffer("".join(state.desc).encode(), np.uint8)]
    codes[state.position] += STANDING
    return codes.reshape(len(state.desc), -1)


# As Gymnasium's FrozenLake reports it, a start is certain.
FIRST_FACTS: Mapping[str, Any] = MappingProxyType({"prob": 1.0, "action_is_effective": False})


class FrozenLakeFacts:
    """What both environments know about a state."""

    def state_key(self, state: FrozenLakeState) -> bytes:
        """Return the bytes of map and position; a start cell counts as ice, because it is ice after the first draw."""
        return state_key(state)

    def is_success(self, state: FrozenLakeState) -> bool:
        """Return whether the player stands on a goal."""
        return state.cell == "G"

    def dead_end(self, state: FrozenLakeState) -> str | None:
        """Return ``"hole"`` or ``"no way"`` if no goal can be reached any more, None otherwise."""
        return None if fewest_steps(state) is not None else "hole" if state.cell == "H" else "no way"

    def fewest_actions(self, state: FrozenLakeState) -> int | None:
        """Return the length of a shortest way to a goal."""
        return fewest_steps(state)


class FrozenLakeDiscreteEnv(FrozenLakeFacts, StateEnv[FrozenLakeState, Any, int]):
    """`FrozenLakeEnv` with one numbered action a step; `FrozenLakeEnv` documents it."""

    metadata = RENDERING
    first_facts = FIRST_FACTS

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
        """Return a start, on the map that the options give or number, or on a random one."""
        state = self._lakes.start(rng, options)
        check_fits(state, self._lakes.shape)
        return state

    def transition(self, state: FrozenLakeState, action: int, rng: np.random.Generator) -> Step:
        """Return the position after one numbered action, its reward, and whether the episode ends."""
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

    def action_masks(self) -> np.ndarray[Any, Any]:
        """Return `[4]`, True for the actions that can change the position; all True where none can."""
        return self._mask(self.state)

    def _mask(self, state: FrozenLakeState) -> np.ndarray[Any, Any]:
        here = state.position
        choices = moves(state.desc, self._ice, self.settings.is_slippery)[here]
        mask = np.array([any(chance and place != here for chance, place, *_ in choice.outcomes) for choice in choices])
        return mask if mask.any() else ~mask

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Return the position as a picture, or as text where `render_mode` is ``"ansi"``."""
        if self.render_mode == "rgb_array":
            return picture(tile_codes(self.state), TILES, ZOOM)
        return grid(self.state) if self.render_mode == "ansi" else None

    def _facts(self, state: FrozenLakeState) -> dict[str, Any]:
        return {"success": state.cell == "G", "action_mask": self._mask(state).view(np.int8)}


def observation_space(settings: FrozenLakeSettings, shape: tuple[int, int]) -> Any:
    """Return the space of one observation."""
    if settings.obs_type == "discrete":
        return Discrete(shape[0] * shape[1])
    return space_of(settings.obs_type, shape, len(TILES))


def check_fits(state: FrozenLakeState, shape: tuple[int, int]) -> None:
    """Raise ConfigError if a map has another size than the observations."""
    came = (len(state.desc), len(state.desc[0]))
    if came != shape:
        raise ConfigError(f"wanted a map of {shape[0]}x{shape[1]}, got {came[0]}x{came[1]}: set desc or size to match")
