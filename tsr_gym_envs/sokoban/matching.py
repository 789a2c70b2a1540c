"""How many pushes at least: boxes matched to goals by their distances on the empty board."""

from functools import lru_cache

from tsr_gym_envs.sokoban.rules import Level, cells

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
        found = []
        for cell in frontier:
            for offset in level.offsets:
                origin = cell - offset
                behind = origin - offset
                if origin not in pushes and not walls >> origin & 1 and behind >= 0 and not walls >> behind & 1:
                    pushes[origin] = pushes[cell] + 1
                    found.append(origin)
        frontier = found
    return pushes


def fewest_pushes(level: Level, boxes: int) -> int | None:
    """Return a lower bound on the pushes that solve a position, None where no matching exists (a proof)."""
    distances = push_distances(level)
    costs = [[reach.get(box, UNREACHABLE) for reach in distances] for box in cells(boxes)]
    total = assignment_cost(costs)
    return None if total >= UNREACHABLE else total


def assignment_cost(costs: list[list[int]]) -> int:
    """Return the cheapest total of giving every row a column of its own (Hungarian method, square matrix).

    >>> assignment_cost([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    5
    """
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
