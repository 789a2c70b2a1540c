"""Boards of tile codes as arrays and pictures, names of squares, and symmetric views; without files."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from tsr_gym import FreeText
from tsr_gym.optional import require
from tsr_gym.text_env import MAX_TEXT

Codes = NDArray[np.uint8]
# Forms of a board that are arrays.
ARRAYS = ("array", "onehot", "rgb")
# The mode ``human`` is Gymnasium's wrapper around ``rgb_array``; see `with_window`.
RENDERING: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
# Pixels of a tile's side, and how much larger a rendered picture is than the observation.
TILE_SIDE = 8
ZOOM = 4


def draw_tiles(palette: Mapping[str, tuple[int, int, int]], *tiles: str) -> Codes:
    """Return tiles `[num_tiles, 8, 8, 3]` from drawings of 8 words of 8 letters, each letter a colour."""
    colours = np.zeros((128, 3), np.uint8)
    for letter, colour in palette.items():
        colours[ord(letter)] = colour
    letters = np.frombuffer("".join("".join(tile.split()) for tile in tiles).encode(), np.uint8)
    drawn = np.take(colours, letters.reshape(len(tiles), TILE_SIDE, TILE_SIDE), axis=0)
    drawn.setflags(write=False)
    return drawn


def one_hot(codes: Codes, num_codes: int) -> Codes:
    """Return planes `[..., num_codes, H, W]`, 1 where the board `[..., H, W]` holds the code."""
    planes = codes[..., None, :, :] == np.arange(num_codes, dtype=np.uint8)[:, None, None]
    shown: Codes = planes.view(np.uint8)
    return shown


def picture(codes: Codes, tiles: Codes, zoom: int = 1) -> Codes:
    """Return pictures `[..., 8 * zoom * H, 8 * zoom * W, 3]` of boards `[..., H, W]`."""
    *batch, height, width = codes.shape
    # Indexing gives [..., H, W, 8, 8, 3]; moving an axis gives [..., H, 8, W, 8, 3], whose reshape is the picture.
    pixels = np.moveaxis(tiles[codes], -3, -4)
    pixels = pixels.reshape(*batch, height * TILE_SIDE, width * TILE_SIDE, 3)
    return pixels.repeat(zoom, axis=-3).repeat(zoom, axis=-2) if zoom > 1 else np.ascontiguousarray(pixels)


def as_array(codes: Codes, obs_type: str, tiles: Codes) -> Codes:
    """Return boards in a form of `ARRAYS`, as new arrays."""
    if obs_type == "onehot":
        return one_hot(codes, len(tiles))
    return picture(codes, tiles) if obs_type == "rgb" else codes.copy()


def space_of(obs_type: str, shape: Sequence[int], num_codes: int) -> gym.Space[str] | gym.spaces.Box:
    """Return the space of one observation: an array of the board's shape, or text."""
    height, width = shape
    if obs_type == "array":
        return gym.spaces.Box(0, num_codes - 1, (height, width), np.uint8)
    if obs_type == "onehot":
        return gym.spaces.Box(0, 1, (num_codes, height, width), np.uint8)
    if obs_type == "rgb":
        return gym.spaces.Box(0, 255, (height * TILE_SIDE, width * TILE_SIDE, 3), np.uint8)
    return FreeText(MAX_TEXT)


def with_window(make: Callable[[str | None], gym.Env[Any, Any]], render_mode: str | None) -> gym.Env[Any, Any]:
    """Return the environment that `make` makes for a render mode, in a window for ``"human"``.

    Raises:
        MissingExtra: A window needs pygame.
    """
    if render_mode != "human":
        return make(render_mode)
    require("pygame", "render")
    return gym.wrappers.HumanRendering(make("rgb_array"))


def square(row: int, column: int) -> str:
    """Return a square's name: a letter for the column, then the row, counted from 1 at the top left.

    >>> square(0, 0), square(2, 1), square(0, 27)
    ('a1', 'b3', 'ab1')
    """
    letters = ""
    column += 1
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return f"{letters}{row + 1}"


def symmetries(rows: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the eight rotations and reflections of a rectangle of characters.

    >>> len(set(symmetries(("ab", "cd"))))
    8
    """
    turned = tuple("".join(column) for column in zip(*rows, strict=True))
    views = []
    for view in (rows, turned):
        mirrored = tuple(row[::-1] for row in view)
        views += [view, mirrored, view[::-1], mirrored[::-1]]
    return views
