"""Bi-level generalised advantage estimation: over turns first, then over the tokens of each (VAGEN, RAGEN)."""

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.gae import values_of
from tsr_gym.agents.learning.advantages.mechanism.discounting import discounted_sum, later, lines_of
from tsr_gym.agents.learning.advantages.mechanism.turn_table import table_of
from tsr_gym.agents.learning.batch import Batch


def bi_level_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0, high_level_gamma: float = 0.95) -> Tensor:
    """Return advantages of tokens, each turn's end credited by GAE over the turns.

    1. Over turns, with e the last token of each: ``A_k = delta_k + high_level_gamma lam A_{k+1}``,
       ``delta_k = r_k + high_level_gamma V(e_{k+1}) - V(e_k)``.
    2. Within a turn, as if ``A_k + V(e_k)`` were its reward and nothing came after it: GAE with gamma and lam.

    As RAGEN has it (ragen/trainer/core_algos.py), before its whitening. There a turn's end is where the reward is not
    0, so that a turn without reward melts into the next one; here it is the turn's last token. With high_level_gamma
    = gamma and lam = 1 this is `gae`.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token.
        lam: Decay of the estimates, per turn and per token.
        high_level_gamma: Discount per turn, 0.95 in RAGEN.

    Returns:
        `[B, T]`.

    Raises:
        ValueError: The batch has no values.
    """
    all_values, table = values_of(batch), table_of(batch)
    values = all_values[table.row, table.column]
    last = table.starts + table.tokens - 1
    turns, tokens = lines_of(table.trajectory), lines_of(table.entry)
    ends = turns.write(values[last])
    high = discounted_sum(turns.write(table.reward) + high_level_gamma * later(ends) - ends, high_level_gamma * lam)
    rewards = torch.zeros_like(values)
    rewards[last] = turns.read(high) + values[last]
    lined = tokens.write(values)
    low = discounted_sum(tokens.write(rewards) + gamma * later(lined) - lined, gamma * lam)
    spread = torch.zeros_like(batch.rewards)
    spread[table.row, table.column] = tokens.read(low)
    return spread
