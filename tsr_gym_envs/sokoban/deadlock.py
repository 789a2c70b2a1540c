"""Proofs that a position can never be solved.

Invariant: a position is flagged only where a proof exists, so no position of any solution is ever flagged.
"""

from dataclasses import dataclass

from tsr_gym_envs.sokoban.deadlock_rules import RULES, judge
from tsr_gym_envs.sokoban.oracle import distance_table
from tsr_gym_envs.sokoban.rules import SokobanState
from tsr_gym_envs.sokoban.solver import solve


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Why a position cannot be solved.

    Attributes:
        rule: What found it. ``"dead square"``: a box reaches no goal from its cell; ``"player side"``: not from the
            side where the player is; ``"freeze"``: boxes hold each other, not all on goals; ``"matching"``: boxes
            cannot all have goals of their own; ``"pair"``: two boxes could not be solved even alone; ``"search"``: all
            that can follow was searched; ``"table"``: it is not among all positions that can be solved.
        proved: Whether it is a proof; so far always, for a guess is no deadlock.
    """

    rule: str
    proved: bool = True


_BY_RULE = {rule: Deadlock(name) for rule, name in RULES.items()}


def find_deadlock(state: SokobanState, *, search_nodes: int = 0) -> Deadlock | None:
    """Return why a position cannot be solved, None where no proof was found.

    The rules take microseconds once the tables of the level exist (`level_tables`, kept for the last levels). Boxes
    that are frozen on goals count as walls, and the rules are asked again.

    Args:
        state: The position.
        search_nodes: Where the rules find nothing, search on with at most this many nodes, then look into the table of
            all positions if the board is small enough for one.
    """
    rule, _ = judge(state)
    if rule or not search_nodes:
        return _BY_RULE.get(rule)
    status = solve(state, max_nodes=search_nodes).status
    if status == "unsolvable":
        return Deadlock("search")
    table = distance_table(state.level) if status == "unknown" else None
    return Deadlock("table") if table is not None and (state.boxes, state.player) not in table else None
