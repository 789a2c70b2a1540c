"""Sokoban for ordinary reinforcement learning: numbered actions, and observations as tile codes, pictures or text."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.error import InvalidAction
from gymnasium.spaces import Discrete

from tsr_gym import ConfigError, Limits, StateEnv, Step
from tsr_gym_envs.sokoban.plan import dead_end
from tsr_gym_envs.sokoban.rooms import Rooms
from tsr_gym_envs.sokoban.rules import (
    ACTIONS,
    OBSERVATIONS,
    Rewards,
    SokobanState,
    grid,
    paint,
    push,
    reward_of,
    state_key,
)
from tsr_gym_envs.sokoban.score import fewest_moves
from tsr_gym_envs.sokoban.settings import SokobanSettings
from tsr_gym_envs.tiles import RENDERING, ZOOM, Codes, as_array, draw_tiles, picture, space_of

# Tile codes; the first six are gym-sokoban's numbers.
WALL, FLOOR, GOAL, BOX_ON_GOAL, BOX, PLAYER, PLAYER_ON_GOAL = range(7)
# From the codes of `paint`, which ends with the outside of a ragged outline.
_PAINTED = bytes((WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL, WALL)).ljust(256, b"\0")
_BRICK, _MORTAR, _FLOOR = (148, 92, 68), (96, 60, 48), (232, 222, 200)
_PALETTE = {
    "b": _BRICK,
    "m": _MORTAR,
    ".": _FLOOR,
    "g": (206, 72, 72),
    "w": (190, 134, 64),
    "k": (122, 80, 34),
    "G": (104, 170, 84),
    "K": (52, 104, 46),
    "s": (240, 196, 160),
    "j": (60, 98, 178),
    "e": (30, 30, 46),
}
TILES = draw_tiles(
    _PALETTE,
    "bbbmbbbb bbbmbbbb bbbmbbbb mmmmmmmm bbbbbbmb bbbbbbmb bbbbbbmb mmmmmmmm",
    "........ ........ ........ ........ ........ ........ ........ ........",
    "........ ........ ...gg... ..g..g.. ..g..g.. ...gg... ........ ........",
    "KKKKKKKK KGGGGGGK KGKGGKGK KGGKKGGK KGGKKGGK KGKGGKGK KGGGGGGK KKKKKKKK",
    "kkkkkkkk kwwwwwwk kwkwwkwk kwwkkwwk kwwkkwwk kwkwwkwk kwwwwwwk kkkkkkkk",
    "........ ..ssss.. ..eses.. ..ssss.. .jjjjjj. .sjjjjs. ..jjjj.. ..e..e..",
    "........ ..ssss.. ..eses.. ..ssss.. .jjjjjj. gsjjjjsg g.jjjj.g ..egge..",
)


def tile_codes(state: SokobanState, shape: tuple[int, int]) -> Codes:
    """Return the board `[H, W]` of a shape, the level at its top left and wall around it."""
    level = state.level
    # Rows of `paint` end with a newline; with one more at the end they form a rectangle whose last column is cut off.
    painted = np.frombuffer(paint(state).translate(_PAINTED) + b"\n", np.uint8)
    codes = np.zeros(shape, np.uint8)
    codes[: level.height, : level.width] = painted.reshape(level.height, level.width + 1)[:, :-1]
    return codes


FIRST_FACTS: Mapping[str, Any] = MappingProxyType({"action_is_effective": False})


class SokobanFacts:
    """What both environments know about a state."""

    def state_key(self, state: SokobanState) -> bytes:
        """Return the bytes of walls, goals, boxes and player."""
        return state_key(state)

    def is_success(self, state: SokobanState) -> bool:
        """Return whether all boxes stand on goals."""
        level, boxes, _ = state
        return boxes == level.goals

    def dead_end(self, state: SokobanState) -> str | None:
        """Return the rule that proves a position unsolvable, None without a proof."""
        return dead_end(state)

    def fewest_actions(self, state: SokobanState) -> int | None:
        """Return a lower bound on the actions that solve a position."""
        return fewest_moves(state)


class SokobanDiscreteEnv(SokobanFacts, StateEnv[SokobanState, Any, int]):
    """`SokobanEnv` with one numbered action a step; `SokobanEnv` documents it."""

    metadata = RENDERING
    first_facts = FIRST_FACTS
    draws_noise = False

    def __init__(self, settings: SokobanSettings, *, render_mode: str | None = None) -> None:
        super().__init__(settings, limits=Limits(max_actions=settings.max_actions), render_mode=render_mode)
        self.settings = settings
        self._rewards = Rewards(settings.reward_step, settings.reward_box, settings.reward_done)
        self._rooms = Rooms(settings)
        self._describe = OBSERVATIONS.get(settings.obs_type)
        self._shape = board_shape(settings, self._rooms)
        self.observation_space = space_of(settings.obs_type, self._shape, len(TILES))
        self.action_space: Any = Discrete(len(ACTIONS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        return super().reset(seed=seed, options=self._rooms.options_of(seed, options))

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> SokobanState:
        """Return the start of an episode: the room that the options give or number, or a random one."""
        state = self._rooms.start(rng, options)
        check_fits(state, self._shape)
        return state

    def transition(self, state: SokobanState, action: int, rng: np.random.Generator) -> Step:
        """Return the position after one numbered action, its reward, and whether the room is solved."""
        if not 0 <= action < len(ACTIONS):
            raise InvalidAction(f"wanted an action from 0 to 3 for {ACTIONS}, got {action}")
        after = push(state, action)
        reward = reward_of(state, after, self._rewards)
        return Step(after, reward, after.solved, {"action_is_effective": after is not state})

    def observe(self, state: SokobanState) -> Any:
        """Return the position in the form of `obs_type`."""
        if self._describe is not None:
            return self._describe(state)
        return as_array(tile_codes(state, self._shape), self.settings.obs_type, TILES)

    def action_masks(self) -> np.ndarray[Any, Any]:
        """Return `[4]`, True for the actions that change the position; all True where none does."""
        return self._mask(self.state)

    def _mask(self, state: SokobanState) -> np.ndarray[Any, Any]:
        mask = np.array([push(state, action) is not state for action in range(len(ACTIONS))])
        return mask if mask.any() else ~mask

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Return the position as a picture, or as text where `render_mode` is ``"ansi"``."""
        if self.render_mode == "rgb_array":
            return picture(tile_codes(self.state, self._shape), TILES, ZOOM)
        return grid(self.state) if self.render_mode == "ansi" else None

    def _facts(self, state: SokobanState) -> dict[str, Any]:
        return {"success": state.solved, "action_mask": self._mask(state).view(np.int8)}


def board_shape(settings: SokobanSettings, rooms: Rooms) -> tuple[int, int]:
    """Return the rows and columns of every board: `settings.shape`, or else those of the largest room.

    Raises:
        ConfigError: The rooms are larger than the wanted shape.
    """
    height, width = rooms.largest()
    shape = settings.shape or (height, width)
    if shape[0] < height or shape[1] < width:
        raise ConfigError(f"wanted a shape of at least the largest room's, {height}x{width}, got {shape[0]}x{shape[1]}")
    return shape


def check_fits(state: SokobanState, shape: tuple[int, int]) -> None:
    """Raise ConfigError where a room is larger than the boards."""
    height, width = state.level.height, state.level.width
    if height > shape[0] or width > shape[1]:
        raise ConfigError(f"wanted a room of at most {shape[0]}x{shape[1]}, got {height}x{width}: set a larger shape")
