"""Generalised advantage estimation (arXiv 1506.02438) over tokens, over turns, or over both."""

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.turn_table import TurnTable, discounted_sum, later, table_of
from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.estimators import ALWAYS, estimator


def value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the critic's targets ``A + V``, `[B, T]`, from advantages of tokens before whitening.

    For `gae` and `bi_level_gae`.
    """
    return (advantages + _values_of(batch)) * batch.sampled


def turn_value_targets(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the critic's targets ``A_k + V_k`` on every token of turn k, `[B, T]`, from advantages before whitening.

    ``A + V`` token by token would be wrong: A_k is measured from the turn's first value, so that at a later token the
    sum would add the difference of the two values to the target, and the critic would drift without bound.
    """
    table = table_of(batch)
    return (advantages + table.spread(_values_at_starts(batch, table))) * batch.sampled


@estimator(needs={"values": ALWAYS, "finished": ALWAYS}, targets=value_targets)
def gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return advantages `[B, T]` along each trajectory's sampled tokens; prompts and observations are skipped.

    ``A_t = sum_l (gamma lam)^l delta_{t+l}`` with ``delta_t = r_t + gamma V_{t+1} - V_t`` and V = 0 after the last
    token. A trajectory that is spread over several rows is one sequence. With gamma = lam = 1 this is R - V. An
    unfinished episode is treated as if nothing came after it, so that leaves of a search need another estimator.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token, 1 in the paper.
        lam: Decay of the estimates, 1 in the paper.

    Raises:
        ValueError: The batch has no values.
    """
    # Over sampled tokens in the order of trajectories, so that the next token of a sequence is the next item.
    all_values, table = _values_of(batch), table_of(batch)
    rewards, values = batch.rewards[table.row, table.column], all_values[table.row, table.column]
    return table.write(_along(rewards, values, table.trajectory[table.entry], gamma, lam))


@estimator(needs={"values": ALWAYS, "finished": ALWAYS}, targets=turn_value_targets)
def turn_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """Return advantages `[B, T]`, one for all tokens of a turn, by GAE over turns (turn-level PPO, MT-PPO).

    ``A_k = sum_l (gamma lam)^l delta_{k+l}`` with ``delta_k = r_k + gamma V_{k+1} - V_k``, where r_k is the turn's
    reward, V_k the critic's value at the turn's first token, which is that of the state it was taken in, and V = 0
    after the last turn. Turn-PPO reports gamma 0.99 and lambda 0.9 (second-hand); the defaults are TSR's. The critic's
    targets are `turn_value_targets`.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per turn.
        lam: Decay of the estimates, per turn.

    Raises:
        ValueError: The batch has no values.
    """
    table = table_of(batch)
    return table.spread(_along(table.reward, _values_at_starts(batch, table), table.trajectory, gamma, lam))


@estimator(needs={"values": ALWAYS, "finished": ALWAYS}, targets=value_targets)
def bi_level_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0, high_level_gamma: float = 0.95) -> Tensor:
    """Return advantages `[B, T]` of tokens, with GAE over turns credited at the end of each turn (VAGEN, RAGEN).

    1. Over turns, with e the last token of each: ``A_k = delta_k + high_level_gamma lam A_{k+1}``,
       ``delta_k = r_k + high_level_gamma V(e_{k+1}) - V(e_k)``.
    2. Within a turn, as if ``A_k + V(e_k)`` were its reward and nothing came after it: GAE with gamma and lam.

    This is RAGEN's (ragen/trainer/core_algos.py), before its whitening. There a turn ends where the reward is not 0, so
    that a turn without reward is merged with the next one; here it ends at its last token. With high_level_gamma
    = gamma and lam = 1 this is `gae`.

    Args:
        batch: Trajectories with the critic's values.
        gamma: Discount per token.
        lam: Decay of the estimates, per turn and per token.
        high_level_gamma: Discount per turn, 0.95 in RAGEN.

    Raises:
        ValueError: The batch has no values.
    """
    all_values, table = _values_of(batch), table_of(batch)
    values, last = all_values[table.row, table.column], table.starts + table.tokens - 1
    # Step 1: on each turn's last token A_k + V(e_k), which step 2 treats as the reward of that token.
    rewards = torch.zeros_like(values)
    rewards[last] = _along(table.reward, values[last], table.trajectory, high_level_gamma, lam) + values[last]
    return table.write(_along(rewards, values, table.entry, gamma, lam))


def _along(rewards: Tensor, values: Tensor, sequence: Tensor, gamma: float, lam: float) -> Tensor:
    """Return ``A_t = delta_t + gamma lam A_{t+1}`` within each sequence, ``delta_t = r_t + gamma V_{t+1} - V_t``."""
    return discounted_sum(rewards.to(values.dtype) + gamma * later(values, sequence) - values, sequence, gamma * lam)


def _values_of(batch: Batch) -> Tensor:
    if batch.values is None:
        raise ValueError("GAE needs the critic's values: wanted batch.values [B, T], got None")
    return batch.values


def _values_at_starts(batch: Batch, table: TurnTable) -> Tensor:
    return _values_of(batch)[table.row, table.column][table.starts]
