"""Lower bounds on the moves that solve a position, and potentials: minus the moves left, estimated or exact.

Boxes are matched to goals by their push distances on the board without other boxes, so every bound is admissible.
"""

from collections.abc import Callable
from functools import lru_cache

from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.rules import Level, SokobanState, cells

UNREACHABLE = 1_000_000


@lru_cache(maxsize=1024)
def push_distances(level: Level) -> tuple[dict[int, int], ...]:
    """Return, per goal in ascending order, the fewest pushes that bring a lone box from each cell to it.

    The player may stand anywhere, so these are lower bounds; a cell from which no goal can be reached is dead.
    """
    return tuple(_pulls_from(level, goal) for goal in cells(level.goals))


def _pulls_from(level: Level, goal: int) -> dict[int, int]:
    walls = level.walls
    pushes = {goal: 0}
    frontier = [goal]
    while frontier:
        origins = []
        for cell in frontier:
            for offset in level.offsets:
                origin = cell - offset
                behind = origin - offset
                if origin not in pushes and not walls >> origin & 1 and behind >= 0 and not walls >> behind & 1:
                    pushes[origin] = pushes[cell] + 1
                    origins.append(origin)
        frontier = origins
    return pushes


def fewest_pushes(level: Level, boxes: int) -> int | None:
    """Return a lower bound on the pushes that solve a position, None where no matching exists (a proof)."""
    distances = push_distances(level)
    costs = [[reach.get(box, UNREACHABLE) for reach in distances] for box in cells(boxes)]
    total = assignment_cost(costs)
    return None if total >= UNREACHABLE else total


def assignment_cost(costs: list[list[int]]) -> int:
    """Return the least total cost of assigning each row its own column (Hungarian method, square matrix).

    >>> assignment_cost([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    5
    """
    # Rows and columns have prices (dual variables) with cost >= row price + column price, equal on assigned pairs. Each
    # row is added by a shortest augmenting path in the reduced costs; index 0 stands for the row that is being added.
    size = len(costs)
    infinite = float("inf")
    row_price = [0.0] * (size + 1)
    column_price = [0.0] * (size + 1)
    row_of = [0] * (size + 1)
    for row in range(1, size + 1):
        row_of[0] = row
        column = 0
        slack = [infinite] * (size + 1)
        way = [0] * (size + 1)
        used = [False] * (size + 1)
        while row_of[column]:
            used[column] = True
            here, delta, after = row_of[column], infinite, 0
            for other in range(1, size + 1):
                if not used[other]:
                    reduced = costs[here - 1][other - 1] - row_price[here] - column_price[other]
                    if reduced < slack[other]:
                        slack[other], way[other] = reduced, column
                    if slack[other] < delta:
                        delta, after = slack[other], other
            for other in range(size + 1):
                if used[other]:
                    row_price[row_of[other]] += delta
                    column_price[other] -= delta
                else:
                    slack[other] -= delta
            column = after
        while column:
            row_of[column], column = row_of[way[column]], way[column]
    return sum(costs[row_of[column] - 1][column - 1] for column in range(1, size + 1))


def fewest_moves(state: SokobanState) -> int | None:
    """Return a lower bound on the moves that solve a position; None if it is proved unsolvable.

    The bound adds the pushes of the cheapest matching of boxes to goals and the walk to the nearest box, during which
    no box is pushed. Unlike `estimated_potential` it counts boxes on goals as near too: one of them may be the first
    to move. It is cheap enough to be computed at every turn of a search.
    """
    level, boxes, player = state
    if boxes == level.goals:
        return 0
    pushes = fewest_pushes(level, boxes)
    if pushes is None:
        return None
    row, column = divmod(player, level.width)
    return pushes + min(abs(row - box // level.width) + abs(column - box % level.width) for box in cells(boxes)) - 1


# Moves assigned to an unsolvable position: more than any solvable position of a small board needs.
DEADLOCKED = 40.0


def estimated_potential(state: SokobanState) -> float:
    """Return minus a lower bound on the moves to solved, from matching and the walk to the nearest box.

    It is `-DEADLOCKED` if boxes and goals cannot be matched, which proves the position unsolvable.
    """
    level, boxes, player = state
    pushes = fewest_pushes(level, boxes)
    if pushes is None:
        return -DEADLOCKED
    misplaced = cells(boxes & ~level.goals)
    if not misplaced:
        return 0.0
    row, column = divmod(player, level.width)
    walk = min(abs(row - box // level.width) + abs(column - box % level.width) for box in misplaced) - 1
    return -float(pushes + walk)


def next_push_potential(state: SokobanState) -> float:
    """Return minus an estimate of the moves to solved that walks to where the next push begins.

    ``min over pushes p of (walk to where p begins + 1 + fewest pushes after p)``, over those that bring boxes nearer to
    their goals if the player can make one, else over all. Walks go round walls and boxes, so the estimate
    includes the way around a box. It is not a bound: the best push may lead away. It is `-DEADLOCKED` if no push leaves
    a matching of boxes to goals, which proves the position unsolvable.
    """
    level, boxes, player = state
    if boxes == level.goals:
        return 0.0
    walks = _walks(level, boxes, player)
    # Every push that the player can make now, with the lower bound of pushes after it and the walk before it.
    pushed = [
        (fewest_pushes(level, boxes ^ (1 << box | 1 << box + offset)), walks[box - offset])
        for box in cells(boxes)
        for offset in level.offsets
        if box - offset in walks and not (level.walls | boxes) >> box + offset & 1
    ]
    possible = [(pushes, walk) for pushes, walk in pushed if pushes is not None]
    now = fewest_pushes(level, boxes)
    # Pushes that bring boxes nearer are preferred: comparing all pushes would favour a short walk to a useless one.
    nearer = [(pushes, walk) for pushes, walk in possible if now is not None and pushes < now]
    return -float(min((walk + 1 + pushes for pushes, walk in nearer or possible), default=DEADLOCKED))


def _walks(level: Level, boxes: int, player: int) -> dict[int, int]:
    """Return the moves to each cell that the player can walk to."""
    free, width = ~(level.walls | boxes), level.width
    walks, area, edge = {player: 0}, 1 << player, 1 << player
    while edge:
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free & ~area
        area |= edge
        moves = 1 + walks[next(reversed(walks))]
        walks.update((cell, moves) for cell in cells(edge))
    return walks


def exact_potential(state: SokobanState) -> float:
    """Return minus the exact number of moves to solved, `-DEADLOCKED` for an unsolvable position.

    Raises:
        ValueError: The board is too large for an exact table.
    """
    moves = oracle.distance(state)
    return -DEADLOCKED if moves is None else -float(moves)


POTENTIALS: dict[str, Callable[[SokobanState], float]] = {
    "estimate": estimated_potential,
    "next_push": next_push_potential,
    "oracle": exact_potential,
}
