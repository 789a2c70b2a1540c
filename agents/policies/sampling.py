"""Sampling with one random number per seed and position: what is drawn never depends on who else is in the batch."""

import torch
from torch import Tensor

_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def uniforms(seeds: Tensor, position: int) -> Tensor:
    """Return one uniform number in [0, 1) per seed for a position in its sequence (SplitMix64).

    Args:
        seeds: `[R]` int64.
        position: Which number of each seed's sequence.
    """
    state = seeds + (position + 1) * _wrap(_GAMMA)
    state = (state ^ _shift(state, 30)) * _MIX_1
    state = (state ^ _shift(state, 27)) * _MIX_2
    state = state ^ _shift(state, 31)
    return _shift(state, 11).double() / 2.0**53


def sample_tokens(logits: Tensor, temperature: float, seeds: Tensor, position: int) -> tuple[Tensor, Tensor]:
    """Draw one token per row from ``softmax(logits / temperature)``.

    Args:
        logits: `[R, V]` in any floating type.
        temperature: 0 takes the most likely token, whose log-probability is then 0.
        seeds: `[R]` int64.
        position: Position in the answer.

    Returns:
        Token ids `[R]` and the exact log-probability of each under the distribution it was drawn from, `[R]` float32.
    """
    if temperature == 0:
        ids = logits.argmax(dim=-1)
        return ids, torch.zeros(len(ids), device=logits.device)
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    points = uniforms(seeds, position)[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, points, right=True).clamp(max=logits.shape[-1] - 1)
    return ids[:, 0], logprobs.gather(1, ids)[:, 0]


def _shift(value: Tensor, bits: int) -> Tensor:
    """Return the logical right shift, which int64 tensors do not have."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _wrap(value: int) -> Tensor:
    return torch.tensor(value, dtype=torch.int64)
