"""Sokoban's board as tile codes and pictures."""

import numpy as np

from tsr_gym_envs.sokoban.rules import SokobanState, paint
from tsr_gym_envs.tiles import Codes, draw_tiles

# What a tile code stands for; the first six are gym-sokoban's numbers.
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
    painted = np.frombuffer(paint(state).translate(_PAINTED) + b"\n", np.uint8)
    codes = np.zeros(shape, np.uint8)
    codes[: level.height, : level.width] = painted.reshape(level.height, level.width + 1)[:, :-1]
    return codes
