"""The exact oracle of small boards: a table of every solvable position and its distance to solved, in moves."""

from collections.abc import Collection, Iterator
from functools import lru_cache
from math import comb

from tsr_gym_envs.sokoban.rules import ACTIONS, Level, SokobanState, cells, push

MAX_STATES = 200_000
Table = dict[tuple[int, int], int]


def num_positions(level: Level) -> int:
    """Return the number of placements of the boxes and the player on a level."""
    floor = level.height * level.width - level.walls.bit_count()
    boxes = level.goals.bit_count()
    return comb(floor, boxes) * max(floor - boxes, 0)


@lru_cache(maxsize=1024)
def distance_table(level: Level) -> Table | None:
    """Return the fewest moves to a solution by solvable position, None if the board is too large.

    The breadth-first search runs backwards from all solved positions, so a position outside the table is proved
    unsolvable.

    Returns:
        Moves by (boxes, player), or None where the level has more than `MAX_STATES` positions.
    """
    if num_positions(level) > MAX_STATES:
        return None
    return retrograde(level, max_moves=None, max_states=MAX_STATES)


def retrograde(level: Level, *, max_moves: int | None, max_states: int) -> Table:
    """Return exact distances of the positions nearest to solved.

    Args:
        level: Walls and goals.
        max_moves: Farthest distance to list, None for all.
        max_states: The search stops before the layer at which it would hold more positions than this.
    """
    table: Table = {}
    for moves, layer in enumerate(layers(level)):
        if moves and len(table) + len(layer) > max_states:
            break
        table |= dict.fromkeys(layer, moves)
        if moves == max_moves:
            break
    return table


def layers(level: Level) -> Iterator[Collection[tuple[int, int]]]:
    """Yield the positions (boxes, player) by their distance to a solution: first those at 0 moves, then 1, 2, ..."""
    walls, goals, offsets = level.walls, level.goals, level.offsets
    free = cells(~walls & ~goals & ((1 << level.height * level.width) - 1))
    layer: Collection[tuple[int, int]] = [(goals, player) for player in free]
    seen = set(layer)
    while layer:
        yield layer
        # One move backwards: the player steps back, and may pull along the box that stood in front of it.
        previous = set()
        for boxes, player in layer:
            bit = 1 << player
            for offset in offsets:
                origin = player - offset
                if (walls | boxes) >> origin & 1:
                    continue
                previous.add((boxes, origin))
                ahead = 1 << (player + offset)
                if boxes & ahead:
                    previous.add((boxes ^ ahead ^ bit, origin))
        previous -= seen
        seen |= previous
        layer = previous


def distance(state: SokobanState) -> int | None:
    """Return the fewest moves to a solution, or None for a position that is proved unsolvable.

    Raises:
        ValueError: The board is too large for a table; check `distance_table` first.
    """
    table = distance_table(state.level)
    if table is None:
        positions = num_positions(state.level)
        raise ValueError(f"wanted a board of at most {MAX_STATES} positions, got {positions}: use the solver")
    return table.get((state.boxes, state.player))


def shortest_solution(state: SokobanState) -> list[int] | None:
    """Return indices into `ACTIONS` that solve a small board in the fewest moves, or None if no solution exists."""
    # Every table entry above 0 has a successor that is one move nearer, so following those successors never backtracks.
    left = distance(state)
    if left is None:
        return None
    plan = []
    while left:
        for action in range(len(ACTIONS)):
            after = push(state, action)
            if distance(after) == left - 1:
                plan.append(action)
                state, left = after, left - 1
                break
    return plan


def random_success(state: SokobanState, num_actions: int) -> float:
    """Return the exact probability that uniformly random actions solve a position within a number of actions."""
    # Positions that several sequences of actions reach are merged, so the work grows with positions and not with 4**n.
    chances = {state: 1.0}
    solved = 0.0
    for _ in range(num_actions):
        spread: dict[SokobanState, float] = {}
        for here, chance in chances.items():
            for action in range(len(ACTIONS)):
                after = push(here, action)
                if after.solved:
                    solved += chance / len(ACTIONS)
                else:
                    spread[after] = spread.get(after, 0.0) + chance / len(ACTIONS)
        chances = spread
    return solved
