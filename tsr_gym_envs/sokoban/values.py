"""Whether a position can still be solved within so many actions, decided exactly."""

from tsr_gym.optional import require
from tsr_gym_envs.sokoban import oracle
from tsr_gym_envs.sokoban.fewest_moves import fewest_moves
from tsr_gym_envs.sokoban.plan import PLAN_NODES
from tsr_gym_envs.sokoban.rules import SokobanState


def best_value(state: SokobanState, num_actions: int | None, *, max_nodes: int = PLAN_NODES) -> float | None:
    """Return 1.0 where a position can be solved within a number of actions, else 0.0; None where nobody knows.

    By the table of all positions where the board is small. On larger boards by a lower bound, and where that leaves it
    open by the solver, which gives up at a number of stored positions.

    Args:
        state: The position.
        num_actions: Actions that are left, None for any number.
        max_nodes: Most positions that the solver may store.

    Raises:
        MissingExtra: The board has no table of all its positions, and the solver needs numba.
    """
    if state.solved:
        return 1.0
    if oracle.distance_table(state.level) is not None:
        return _fits(oracle.distance(state), num_actions)
    bound = fewest_moves(state)
    if bound is None or (num_actions is not None and bound > num_actions):
        return 0.0
    require("numba", "envs")
    from tsr_gym_envs.sokoban.solver import solve

    solution = solve(state, optimal="moves", max_nodes=max_nodes)
    return None if solution.status == "unknown" else _fits(solution.moves, num_actions)


def _fits(moves: int | None, num_actions: int | None) -> float:
    return float(moves is not None and (num_actions is None or moves <= num_actions))
