"""Boxes matched to goals at the least pushes, compiled: the lower bound of the search and the matching rule.

A plan is an array `[3, K + 1]` for K boxes and K goals: the boxes' prices, the goals' prices, and the box on each goal
(K where there is none). The last column is free for use.
"""

from tsr_gym_envs.compiled import Bytes, Ints, Longs, njit


@njit
def match_box(box: int, boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs, scratch: Longs) -> None:
    """Give one more box a goal at the least cost, moving others on (one row of the Hungarian method).

    Args:
        box: Index into `boxes`; it has no goal yet and its price is 0.
        boxes: `[K]`, cells of the boxes.
        player: The player's cell.
        side: `LevelTables.side`.
        distance: `LevelTables.distance`.
        plan: `[3, K + 1]`, changed in place.
        scratch: `[3, K + 1]`, overwritten.
    """
    num = boxes.size
    box_price, goal_price, match = plan[0], plan[1], plan[2]
    slack, way, used = scratch[0], scratch[1], scratch[2]
    slack[:] = 2**62
    used[:] = 0
    match[num] = box
    goal = num
    while match[goal] != num:
        used[goal] = 1
        here, least, after = match[goal], 2**62, num
        costs = distance[boxes[here], side[boxes[here], player]]
        for other in range(num):
            if not used[other]:
                reduced = costs[other] - box_price[here] - goal_price[other]
                if reduced < slack[other]:
                    slack[other], way[other] = reduced, goal
                if slack[other] < least:
                    least, after = slack[other], other
        for other in range(num + 1):
            if used[other]:
                box_price[match[other]] += least
                goal_price[other] -= least
            else:
                slack[other] -= least
        goal = after
    while goal != num:
        match[goal] = match[way[goal]]
        goal = way[goal]


@njit
def match_boxes(boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs, scratch: Longs) -> int:
    """Make a plan for all boxes; return its pushes, `UNREACHABLE` or more where boxes and goals cannot be matched."""
    plan[:2] = 0
    plan[2] = boxes.size
    for box in range(boxes.size):
        match_box(box, boxes, player, side, distance, plan, scratch)
    return planned_pushes(boxes, player, side, distance, plan)


@njit
def rematch_box(box: int, boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs, scratch: Longs) -> int:
    """Mend a plan after one box moved; return its pushes, as `match_boxes`."""
    plan[0, box] = 0
    for goal in range(boxes.size):
        if plan[2, goal] == box:
            plan[2, goal] = boxes.size
    match_box(box, boxes, player, side, distance, plan, scratch)
    return planned_pushes(boxes, player, side, distance, plan)


@njit
def planned_pushes(boxes: Ints, player: int, side: Bytes, distance: Ints, plan: Longs) -> int:
    """Return the pushes that a plan needs."""
    pushes = 0
    for goal in range(boxes.size):
        cell = boxes[plan[2, goal]]
        pushes += distance[cell, side[cell, player], goal]
    return pushes
