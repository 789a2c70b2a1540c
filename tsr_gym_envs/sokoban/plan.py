"""Answers about a position's future: a shortest plan, a proof that no solution exists, and the value within a limit.

Small boards are looked up in the table of all positions (`score`); larger ones need numba and the solver.
"""

from tsr_gym.errors import MissingExtra
from tsr_gym.optional import require
from tsr_gym_envs.sokoban.levels import parse_lurd
from tsr_gym_envs.sokoban.rules import SokobanState
from tsr_gym_envs.sokoban.score import distance, distance_table, fewest_moves, shortest_solution

# Most positions that a search for a plan stores: about a second.
PLAN_NODES = 300_000
# Most positions that a proof of a dead end stores: some milliseconds, because it may run at every turn.
PROOF_NODES = 3_000


def shortest_plan(state: SokobanState) -> list[int] | None:
    """Return indices into `ACTIONS` that solve a position, None if no plan exists or the search gave up.

    The plan has the fewest moves; on boards too large to search for those, the fewest pushes.

    Raises:
        MissingExtra: The board has no table of all its positions, and the solver needs numba.
    """
    if distance_table(state.level) is not None:
        return shortest_solution(state)
    require("numba", "envs")
    from tsr_gym_envs.sokoban.solver import solve

    solution = solve(state, optimal="moves", max_nodes=PLAN_NODES)
    if solution.status == "unknown":
        # Fewest pushes needs far fewer nodes, because all cells within the player's reach count as one position.
        solution = solve(state, optimal="pushes", max_nodes=PLAN_NODES)
    return None if solution.lurd is None else list(parse_lurd(solution.lurd))


def dead_end(state: SokobanState) -> str | None:
    """Return the rule that proves a position unsolvable, None without a proof.

    Raises:
        MissingExtra: The board has no table of all its positions, and the rules need numba.
    """
    table = distance_table(state.level)
    if table is not None and distance(state) is not None:
        return None
    # With a table the verdict does not need numba: only the name of the rule does.
    try:
        require("numba", "envs")
    except MissingExtra:
        if table is None:
            raise
        return "table"
    from tsr_gym_envs.sokoban.solver import find_deadlock

    deadlock = find_deadlock(state, search_nodes=PROOF_NODES)
    return None if deadlock is None else deadlock.rule


def best_value(state: SokobanState, num_actions: int | None, *, max_nodes: int = PLAN_NODES) -> float | None:
    """Return 1.0 where a position can be solved within a number of actions, else 0.0; None if undecided.

    Small boards are decided by the table of all positions. Larger ones are decided by a lower bound, then by the
    solver, which gives up after a number of stored positions.

    Args:
        state: The position.
        num_actions: Actions that are left, None for any number.
        max_nodes: Most positions that the solver may store.

    Raises:
        MissingExtra: The board has no table of all its positions, and the solver needs numba.
    """
    if state.solved:
        return 1.0
    if distance_table(state.level) is not None:
        return _fits(distance(state), num_actions)
    bound = fewest_moves(state)
    if bound is None or (num_actions is not None and bound > num_actions):
        return 0.0
    require("numba", "envs")
    from tsr_gym_envs.sokoban.solver import solve

    solution = solve(state, optimal="moves", max_nodes=max_nodes)
    return None if solution.status == "unknown" else _fits(solution.moves, num_actions)


def _fits(moves: int | None, num_actions: int | None) -> float:
    return float(moves is not None and (num_actions is None or moves <= num_actions))
