"""Generalised advantage estimation over the tokens that the model said (arXiv 1506.02438)."""

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.mechanism.discounting import discounted_sum, later, lines_of
from tsr_gym.agents.learning.advantages.mechanism.turn_table import table_of
from tsr_gym.agents.learning.batch import Batch


def gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return advantages along each trajectory's sampled tokens; prompts and observations in between are skipped.

    ``A_t = sum_l (gamma lam)^l delta_{t+l}`` with ``delta_t = r_t + gamma V_{t+1} - V_t`` and V = 0 after the last
    token. A trajectory that is spread over several rows is one sequence. With gamma = lam = 1 this is R - V. An episode
    that was left unfinished is treated as if nothing came after it.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token, 1 in the paper.
        lam: Decay of the estimates, 1 in the paper.

    Returns:
        `[B, T]`.

    Raises:
        ValueError: The batch has no values.
    """
    all_values, table = values_of(batch), table_of(batch)
    lines = lines_of(table.trajectory[table.entry])
    rewards = lines.write(batch.rewards[table.row, table.column])
    values = lines.write(all_values[table.row, table.column])
    advantages = discounted_sum(rewards + gamma * later(values) - values, gamma * lam)
    spread = torch.zeros_like(batch.rewards)
    spread[table.row, table.column] = lines.read(advantages)
    return spread


def value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return what the critic should have said, ``A + V``, `[B, T]`; advantages before whitening.

    For advantages of tokens, as `gae` and `bi_level_gae` give them.
    """
    return (advantages + values_of(batch)) * batch.sampled


def values_of(batch: Batch) -> Tensor:
    """Return the critic's values.

    Raises:
        ValueError: There are none.
    """
    if batch.values is None:
        raise ValueError("GAE needs the critic's values: wanted batch.values [B, T], got None")
    return batch.values
