"""Starting positions: a given level, the levels of files, or generated rooms, solvable and drawn in bounded time.

Native rooms are drawn from one Generator and do not depend on the installed packages: where the enumeration in plain
Python does not reach the required solution length, the compiled solver is required, and no other method replaces it.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from tsr_gym import ConfigError, GenerationFailed
from tsr_gym.optional import require
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.sokoban.levels import LevelFiles, parse_level, walk_to
from tsr_gym_envs.sokoban.rules import Level, SokobanState, canonical_form, cells, push, reachable, state_key
from tsr_gym_envs.sokoban.score import layers, num_positions
from tsr_gym_envs.sokoban.settings import GeneratorName, SokobanSettings, check_generator, check_room_settings

SOLUTION_LENGTH = (1, 10)
MAX_ATTEMPTS = 500
MAX_STATES = 20_000
# Where boards are too large to enumerate: trails tried per floor, pulls per trail, nodes per question to the solver.
MAX_TRAILS = 30
PULLS_PER_TRAIL = 8
MAX_SOLVER_NODES = 20_000
_P_TURN = 0.35
# The five 3x3 brushes of gym-sokoban's room generator, as offsets from the centre.
_BRUSHES = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def generate_room(
    seed: int,
    *,
    generator: GeneratorName = "native",
    dim: tuple[int, int] = (6, 6),
    num_boxes: int = 1,
    solution_length: tuple[int, int] | None = None,
    search_depth: int | None = None,
) -> SokobanState:
    """Return the room of a seed.

    Args:
        seed: Seed of all random numbers.
        generator: ``"native"``; or ``"ragen"`` or ``"gym-sokoban"``, which draw the originals' room of the seed, need
            numba, and guarantee only that a solution exists.
        dim: Rows and columns, walls included.
        num_boxes: Boxes and goals.
        solution_length: Fewest and most moves that the shortest solution may have; only for native rooms, where None is
            (1, 10).
        search_depth: How far RAGEN's search for a good room goes, None for its default; only for RAGEN's rooms.

    Raises:
        ConfigError: The settings leave no room for a room, or do not belong to the generator.
        GenerationFailed: No such room was found in a bounded number of attempts.
        MissingExtra: The room needs numba.
    """
    check_generator(generator, solution_length, search_depth)
    if generator == "native":
        rng = np.random.default_rng(seed)
        return draw_room(rng, dim=dim, num_boxes=num_boxes, solution_length=solution_length or SOLUTION_LENGTH)
    from tsr_gym_envs.sokoban import parity

    check_room_settings(dim, num_boxes, None)
    if generator == "gym-sokoban":
        return parity.gym_sokoban_room(seed, dim=dim, num_boxes=num_boxes)
    depth = parity.SEARCH_DEPTH if search_depth is None else search_depth
    return parity.ragen_room(seed, dim=dim, num_boxes=num_boxes, search_depth=depth)


def draw_room(
    rng: np.random.Generator, *, dim: tuple[int, int], num_boxes: int, solution_length: tuple[int, int]
) -> SokobanState:
    """Return a random room; see `generate_room`.

    A random walk carves the floor, goals are placed on it, and the positions nearest to solved are enumerated
    backwards, at most `MAX_STATES` of them. A length is drawn among the allowed lengths that occur, then one
    of its positions: lengths are exact, are spread over the allowed range, and need no numba. Where the range begins
    beyond the enumerated positions, boxes are pulled away at random, and the compiled solver finds a position of the
    drawn length on the way: also exact, but possibly slow, and given up after `MAX_ATTEMPTS` floors.

    Raises:
        ConfigError, GenerationFailed, MissingExtra: See `generate_room`.
    """
    check_room_settings(dim, num_boxes, solution_length)
    # Floors with at least this many positions cannot be enumerated up to the shortest allowed solution.
    too_many = float("inf")
    for _ in range(MAX_ATTEMPTS):
        level = _draw_level(rng, dim, num_boxes)
        if level is None:
            continue
        positions, state = num_positions(level), None
        if positions < too_many:
            by_length, is_whole = _enumerate(level, *solution_length)
            if by_length:
                return _pick(rng, level, by_length)
            too_many = too_many if is_whole else positions
        # A floor that could not be enumerated far enough sets the bound: larger floors go to the trails at once.
        if positions >= too_many:
            state = _pick_from_trails(rng, level, int(rng.integers(solution_length[0], solution_length[1] + 1)))
        if state is not None:
            return state
    raise GenerationFailed(
        f"no {dim[0]}x{dim[1]} room with {num_boxes} boxes and a solution of {solution_length[0]} to "
        f"{solution_length[1]} moves in {MAX_ATTEMPTS} attempts: widen solution_length or enlarge dim"
    )


def _enumerate(level: Level, shortest: int, longest: int) -> tuple[dict[int, list[tuple[int, int]]], bool]:
    """Return the positions (boxes, player) by the length of their shortest solution, and whether they are all."""
    # Positions are sorted, because the iteration order of a set depends on the hash seed of the process.
    by_length: dict[int, list[tuple[int, int]]] = {}
    num = 0
    for moves, layer in enumerate(layers(level)):
        num += len(layer)
        if moves and num > MAX_STATES:
            return by_length, False
        if moves >= shortest:
            by_length[moves] = sorted(layer)
        if moves == longest:
            break
    return by_length, True


def _pick(rng: np.random.Generator, level: Level, by_length: dict[int, list[tuple[int, int]]]) -> SokobanState:
    lengths = sorted(by_length)
    positions = by_length[lengths[rng.integers(len(lengths))]]
    return SokobanState(level, *positions[rng.integers(len(positions))])


def _pick_from_trails(rng: np.random.Generator, level: Level, length: int) -> SokobanState | None:
    """Return a position whose shortest solution has exactly this many moves, or None.

    Random trails lead away from solved as long as they lead farther. One step of a trail makes the shortest solution at
    most one move longer, so between a nearer and a farther position lies one of the wanted length; halving finds it.
    """
    from tsr_gym_envs.sokoban.solver import solve

    def moves_of(state: SokobanState) -> int | None:
        return solve(state, optimal="moves", max_nodes=MAX_SOLVER_NODES).moves

    free = cells(~level.walls & ~level.goals & ((1 << level.height * level.width) - 1))
    farthest, most = SokobanState(level, level.goals, free[rng.integers(len(free))]), 0
    for _ in range(MAX_TRAILS):
        trail = [farthest, *_pull_at_random(rng, farthest)]
        moves = moves_of(trail[-1])
        if moves is None or moves < most:
            continue
        if moves < length:
            farthest, most = trail[-1], moves
            continue
        # Invariant: trail[near] needs fewer moves than `length` and trail[far] at least `length`. Neighbours on the
        # trail differ by at most one move, so at the end trail[far] needs exactly `length` moves.
        near, far = 0, len(trail) - 1
        while far - near > 1:
            middle = (near + far) // 2
            moves = moves_of(trail[middle])
            if moves is None:
                return None
            near, far = (middle, far) if moves < length else (near, middle)
        return trail[far]
    return None


def _pull_at_random(rng: np.random.Generator, state: SokobanState) -> list[SokobanState]:
    """Return the positions on the way back from a position through some random pulls, each one step from the last."""
    trail = []
    walls, offsets = state.level.walls, state.level.offsets
    for _ in range(PULLS_PER_TRAIL):
        area, blocked = reachable(state), walls | state.boxes
        pulls = [
            (box, offset)
            for box in cells(state.boxes)
            for offset in offsets
            if area >> (box + offset) & 1 and not blocked >> (box + 2 * offset) & 1
        ]
        if not pulls:
            break
        box, offset = pulls[rng.integers(len(pulls))]
        for action in walk_to(state, box + offset):
            state = push(state, action)
            trail.append(state)
        state = SokobanState(state.level, state.boxes ^ (1 << box | 1 << (box + offset)), box + 2 * offset)
        trail.append(state)
    return trail


def _draw_level(rng: np.random.Generator, dim: tuple[int, int], num_boxes: int) -> Level | None:
    height, width = dim
    floor = 0
    row, column = int(rng.integers(1, height - 1)), int(rng.integers(1, width - 1))
    # The order of these draws is part of the definition of a seed's room: a change would change all native rooms.
    turn = rng.random(size=int(1.7 * (height + width))) < _P_TURN
    direction = _DIRECTIONS[rng.integers(4)]
    for turns in turn:
        if turns:
            direction = _DIRECTIONS[rng.integers(4)]
        row = min(max(row + direction[0], 1), height - 2)
        column = min(max(column + direction[1], 1), width - 2)
        for down, right in _BRUSHES[rng.integers(len(_BRUSHES))]:
            if 1 <= row + down < height - 1 and 1 <= column + right < width - 1:
                floor |= 1 << ((row + down) * width + column + right)
    free = cells(floor)
    if len(free) < 2 * num_boxes + 1:
        return None
    picks = rng.choice(len(free), size=num_boxes, replace=False)
    goals = sum(1 << free[pick] for pick in picks)
    return Level(height, width, ((1 << height * width) - 1) & ~floor, goals)


MAX_DRAWS = 10_000
# Published rooms are numbered as `np.random.seed` takes seeds.
NUM_PUBLISHED = 2**32


class Rooms:
    """The rooms that some settings allow.

    Attributes:
        size: Number of rooms, None if it is unknown or unbounded.

    Raises:
        ConfigError: There are fewer levels than `num_levels`.
        InvalidLevel: A level is malformed.
        MissingExtra: The generator needs numba.
    """

    def __init__(self, settings: SokobanSettings) -> None:
        self._settings = settings
        self._files = None if settings.levels is None else _level_files(settings.levels, settings.split)
        self._known: dict[int, SokobanState] = {}
        self.size = settings.num_levels
        if settings.level is not None:
            self._known[0] = parse_level(settings.level)
            self.size = 1
        elif self._files is not None and (settings.num_levels or len(self._files.files) == 1):
            self._known.update(enumerate(self._files.first(settings.num_levels)))
            self.size = len(self._known)
            if self.size < (settings.num_levels or 0):
                raise ConfigError(f"{settings.levels}: wanted {settings.num_levels} levels, got {self.size}")
        elif settings.is_published:
            require("numba", "envs")

    def options_of(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        """Return the options of a reset; with a published generator, the seed becomes the number of the room."""
        is_name = self._settings.is_published and self.size is None and seed is not None and seed < NUM_PUBLISHED
        return {**({"number": seed} if is_name else {}), **(options or {})}

    def start(self, rng: np.random.Generator, options: dict[str, Any]) -> SokobanState:
        """Return the start of an episode: the room that the options give or number, or a random one."""
        if unknown := sorted(set(options) - {"level", "number"}):
            raise ConfigError(f"wanted reset options among ['level', 'number'], got {unknown}")
        if "level" in options:
            if not isinstance(options["level"], str):
                raise ConfigError(f"wanted a level as text, got {options['level']!r:.80}")
            return parse_level(options["level"])
        if "number" in options:
            return self.room(options["number"])
        if self.size is not None:
            return self.room(int(rng.integers(self.size)))
        if self._files is not None:
            levels = self._files.read(int(rng.integers(len(self._files.files))))
            return levels[rng.integers(len(levels))]
        return self.room(int(rng.integers(NUM_PUBLISHED))) if self._settings.is_published else self._draw(rng, None)

    def room(self, number: int) -> SokobanState:
        """Return the room of a number: its place among the levels, or the seed of the generator.

        Raises:
            ConfigError: There is no such number.
        """
        if self._files is not None and self.size is None:
            raise ConfigError("wanted num_levels, which numbers the levels of several files, got None")
        limit = NUM_PUBLISHED if self.size is None else self.size
        if not isinstance(number, int | np.integer) or not 0 <= number < limit:
            raise ConfigError(f"wanted the number of a room below {limit}, got {number!r}")
        if self.size is None:
            return self._draw(np.random.default_rng(number), number)
        if number not in self._known:
            self._known[number] = self._draw(np.random.default_rng(number), number)
        return self._known[number]

    def largest(self) -> tuple[int, int]:
        """Return rows and columns of the largest room; of several files without `num_levels`, of the first file."""
        if self._settings.is_generated:
            return self._settings.dim
        states = self._known.values() or (self._files.read(0) if self._files is not None else ())
        levels = [state.level for state in states]
        return max(level.height for level in levels), max(level.width for level in levels)

    def _draw(self, rng: np.random.Generator, number: int | None) -> SokobanState:
        """Return the first room of the split among those drawn; the room of a number is the first of all."""
        settings = self._settings
        for _ in range(MAX_DRAWS):
            # A published room is named by its seed. Its split is decided afterwards, so a rejected room costs a full
            # draw.
            if settings.is_published:
                state = generate_room(
                    int(rng.integers(NUM_PUBLISHED)) if number is None else number,
                    generator=settings.generator,
                    dim=settings.dim,
                    num_boxes=settings.num_boxes,
                    search_depth=settings.search_depth,
                )
                number = None
            else:
                state = draw_room(
                    rng,
                    dim=settings.dim,
                    num_boxes=settings.num_boxes,
                    solution_length=settings.solution_length or SOLUTION_LENGTH,
                )
            if settings.split == "all" or in_split(state_key(canonical_form(state)), settings.split):
                return state
        raise GenerationFailed(
            f"no room of split {settings.split!r} in {MAX_DRAWS} draws: widen the settings {settings}"
        )


@lru_cache(maxsize=8)
def _level_files(path: str, split: str) -> LevelFiles:
    return LevelFiles(path, split=None if split == "all" else split)
