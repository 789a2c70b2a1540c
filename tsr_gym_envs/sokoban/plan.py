"""What is known of a position's future: how it is solved, or why it cannot be."""

from tsr_gym.errors import MissingExtra
from tsr_gym.optional import require
from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.lurd import parse_lurd
from tsr_gym_envs.sokoban.rules import SokobanState

# Positions that a search for a plan may store: about a second.
PLAN_NODES = 300_000
# The same where a proof is wanted that there is no plan: some milliseconds.
PROOF_NODES = 3_000


def shortest_plan(state: SokobanState) -> list[int] | None:
    """Return indices into `ACTIONS` that solve a position, None where nothing does or the search was given up.

    In the fewest moves; on boards too large to search for those, in the fewest pushes.

    Raises:
        MissingExtra: The board has no table of all its positions, and the solver needs numba.
    """
    if oracle.distance_table(state.level) is not None:
        return oracle.shortest_solution(state)
    require("numba", "envs")
    from tsr_gym_envs.sokoban.solver import solve

    found = solve(state, optimal="moves", max_nodes=PLAN_NODES)
    if found.status == "unknown":
        found = solve(state, optimal="pushes", max_nodes=PLAN_NODES)
    return None if found.lurd is None else list(parse_lurd(found.lurd))


def dead_end(state: SokobanState) -> str | None:
    """Return why a position cannot be solved, None where it can be or no proof was found.

    Raises:
        MissingExtra: The board has no table of all its positions, and the rules need numba.
    """
    table = oracle.distance_table(state.level)
    if table is not None and oracle.distance(state) is not None:
        return None
    try:
        require("numba", "envs")
    except MissingExtra:
        if table is None:
            raise
        return "table"
    from tsr_gym_envs.sokoban.deadlock import find_deadlock

    deadlock = find_deadlock(state, search_nodes=PROOF_NODES)
    return None if deadlock is None else deadlock.rule
