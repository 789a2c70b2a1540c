"""The distance of a position to solved: exact tables of small boards, lower bounds and potentials.

A table lists every solvable position of a board. Lower bounds match boxes to goals by their push distances on the board
without other boxes, so every bound is admissible.
"""

from collections.abc import Callable, Collection, Iterator
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
    # They are numbered as the walk reaches them, and each leads to four numbers, -1 for a solved position.
    numbers, positions, leads_to = {state: 0}, [state], list[list[int]]()
    chances = {0: 1.0}
    solved = 0.0
    for _ in range(num_actions):
        spread: dict[int, float] = {}
        for here, chance in chances.items():
            while here >= len(leads_to):
                leads_to.append(_numbered(_pushes(positions[len(leads_to)]), numbers, positions))
            share = chance / len(ACTIONS)
            for end in leads_to[here]:
                if end < 0:
                    solved += share
                else:
                    spread[end] = spread.get(end, 0.0) + share
        chances = spread
    return solved


def _pushes(state: SokobanState) -> list[SokobanState]:
    return [push(state, action) for action in range(len(ACTIONS))]


def _numbered(states: list[SokobanState], numbers: dict[SokobanState, int], positions: list[SokobanState]) -> list[int]:
    """Return the numbers of positions, -1 for solved ones; new ones get the next numbers."""
    ends = []
    for state in states:
        number = -1 if state.solved else numbers.setdefault(state, len(positions))
        if number == len(positions):
            positions.append(state)
        ends.append(number)
    return ends


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
    if size == 1:
        return costs[0][0]
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


@lru_cache(maxsize=4096)
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
    moves = distance(state)
    return -DEADLOCKED if moves is None else -float(moves)


POTENTIALS: dict[str, Callable[[SokobanState], float]] = {
    "estimate": estimated_potential,
    "next_push": next_push_potential,
    "oracle": exact_potential,
}
