"""The proxy of TSR's Eq. 14: how close a position on the lake looks to its goal."""

from tsr_gym_envs.frozen_lake.rules import FrozenLakeState


def proximity(state: FrozenLakeState, *, hole_penalty: float) -> float:
    """Return minus the Manhattan distance to the nearest goal, minus a penalty in a hole (TSR Eq. 14).

    Args:
        state: The position.
        hole_penalty: The equation's lambda.
    """
    columns = len(state.desc[0])
    letters = "".join(state.desc)
    row, column = divmod(state.position, columns)
    goals = [cell for cell, letter in enumerate(letters) if letter == "G"]
    steps = min(abs(row - goal // columns) + abs(column - goal % columns) for goal in goals)
    return -float(steps) - (hole_penalty if letters[state.position] == "H" else 0.0)
