"""Generalised advantage estimation over turns: the estimator of turn-level PPO."""

from torch import Tensor

from tsr_gym.agents.learning.advantages.gae import values_of
from tsr_gym.agents.learning.advantages.mechanism.discounting import discounted_sum, later, lines_of
from tsr_gym.agents.learning.advantages.mechanism.turn_table import TurnTable, table_of
from tsr_gym.agents.learning.batch import Batch


def turn_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return one advantage for all tokens of a turn, by GAE over the turns of each trajectory (turn-level PPO, MT-PPO).

    ``A_k = sum_l (gamma lam)^l delta_{k+l}`` with ``delta_k = r_k + gamma V_{k+1} - V_k``, where r_k is the turn's
    reward, V_k the critic's value at the turn's first token, which is that of the state it was taken in, and V = 0
    after the last turn. Turn-PPO reports gamma 0.99 and lambda 0.9 (second-hand); the defaults are TSR's. A critic
    that is trained with these wants `turn_value_targets`.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per turn.
        lam: Decay of the estimates, per turn.

    Returns:
        `[B, T]`.

    Raises:
        ValueError: The batch has no values.
    """
    table = table_of(batch)
    values = _values_at_starts(batch, table)
    lines = lines_of(table.trajectory)
    rewards, lined = lines.write(table.reward), lines.write(values)
    advantages = discounted_sum(rewards + gamma * later(lined) - lined, gamma * lam)
    return table.spread(lines.read(advantages))


def turn_value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return what the critic should have said at every token of a turn, ``A_k + V_k``, `[B, T]`; before whitening.

    ``A + V`` token by token would not do: where the values within a turn differ from its first, it is no estimate of
    anything that a trajectory earned, and the critic would run away.
    """
    table = table_of(batch)
    return (advantages + table.spread(_values_at_starts(batch, table))) * batch.sampled


def _values_at_starts(batch: Batch, table: TurnTable) -> Tensor:
    return values_of(batch)[table.row, table.column][table.starts]
