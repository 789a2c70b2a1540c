"""The lake as tile codes and pictures."""

import numpy as np

from tsr_gym_envs.frozen_lake.rules import FrozenLakeState
from tsr_gym_envs.tiles import Codes, draw_tiles

# What a tile code stands for.
ICE, HOLE, GOAL, PLAYER, PLAYER_IN_HOLE, PLAYER_ON_GOAL = range(6)
# The player's tile is the code of what lies beneath plus this.
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
