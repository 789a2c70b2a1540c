"""Rooms for a seed: solvable, not yet solved, with a wanted solution length, in bounded time.

Native rooms are drawn from one Generator and do not depend on what is installed: where enumerating positions in plain
Python does not get far enough, numba is needed, and nothing else takes its place.
"""

from typing import Literal, get_args

import numpy as np

from tsr_gym.errors import ConfigError, GenerationFailed
from tsr_gym_envs.sokoban.lurd import walk_to
from tsr_gym_envs.sokoban.oracle import layers, num_positions
from tsr_gym_envs.sokoban.rules import Level, SokobanState, cells, push, reachable

GeneratorName = Literal["native", "ragen", "gym-sokoban"]
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
    """Return the room that a seed stands for.

    Args:
        seed: Seed of all that is drawn.
        generator: ``"native"``; or ``"ragen"`` or ``"gym-sokoban"``, which draw what the originals draw for the seed,
            need numba, and promise of the solution only that there is one.
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
    backwards, at most `MAX_STATES` of them. A length is drawn among the wanted ones that occur, then one of its
    positions: lengths are spread over the wanted range, exact, and need no numba. Where the range begins beyond what
    could be enumerated, boxes are pulled away at random, and the compiled solver finds a position of the wanted length
    on the way: exact, too, but possibly slow, and given up after `MAX_ATTEMPTS` floors.

    Raises:
        ConfigError, GenerationFailed, MissingExtra: See `generate_room`.
    """
    check_room_settings(dim, num_boxes, solution_length)
    # Floors with this many positions or more cannot be enumerated up to the shortest wanted solution.
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


def check_generator(
    generator: str, solution_length: tuple[int, int] | None = None, search_depth: int | None = None
) -> None:
    """Raise ConfigError where a generator is unknown, or a setting is not one of its own."""
    if generator not in get_args(GeneratorName):
        raise ConfigError(f"wanted generator of {sorted(get_args(GeneratorName))}, got {generator!r}")
    if (solution_length is not None and generator != "native") or (search_depth is not None and generator != "ragen"):
        raise ConfigError(f"solution_length is native's setting and search_depth ragen's, got generator {generator!r}")


def check_room_settings(dim: tuple[int, int], num_boxes: int, solution_length: tuple[int, int] | None) -> None:
    """Raise ConfigError where no room can have these properties."""
    if min(dim) < 4 or max(dim) > 64:
        raise ConfigError(f"wanted dim between 4x4 and 64x64, walls included, got {dim}")
    inner = (dim[0] - 2) * (dim[1] - 2)
    if not 1 <= num_boxes <= inner // 2:
        raise ConfigError(f"wanted 1 to {inner // 2} boxes in a {dim[0]}x{dim[1]} room, got {num_boxes}")
    if solution_length is not None and not 1 <= solution_length[0] <= solution_length[1]:
        raise ConfigError(f"wanted 1 <= shortest <= longest solution_length, got {solution_length}")


def _draw_level(rng: np.random.Generator, dim: tuple[int, int], num_boxes: int) -> Level | None:
    height, width = dim
    floor = 0
    row, column = int(rng.integers(1, height - 1)), int(rng.integers(1, width - 1))
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
