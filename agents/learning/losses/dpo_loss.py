"""Direct preference optimisation on pairs of candidates (arXiv 2305.18290)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tsr_gym.agents.bridges.preferences import Pair


@dataclass(frozen=True, slots=True)
class PairBatch:
    """P pairs as 2 P rows: all chosen candidates, then all rejected ones, each after its prompt.

    Attributes:
        ids: `[2P, T]` int64, padded on the right with 0.
        present: `[2P, T]` bool, True where there is a token.
        sampled: `[2P, T]` bool, True on the candidate's tokens.
        sampler_logprobs: `[2P, T]`, log-probability when the candidate was sampled; 0 elsewhere.
    """

    ids: Tensor
    present: Tensor
    sampled: Tensor
    sampler_logprobs: Tensor


def collate_pairs(pairs: Sequence[Pair]) -> PairBatch:
    """Return the rows of some pairs.

    Raises:
        ValueError: There are none.
    """
    if not pairs:
        raise ValueError("wanted at least one pair of candidates, got none")
    rows = [(pair.prompt_ids, pair.chosen_ids, pair.chosen_logprobs) for pair in pairs]
    rows += [(pair.prompt_ids, pair.rejected_ids, pair.rejected_logprobs) for pair in pairs]
    shape = (len(rows), max(len(prompt) + len(said) for prompt, said, _ in rows))
    ids, logprobs = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape)
    present, sampled = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for index, (prompt, said, known) in enumerate(rows):
        end = len(prompt) + len(said)
        ids[index, :end] = torch.tensor(prompt + said)
        present[index, :end] = True
        sampled[index, len(prompt) : end] = True
        logprobs[index, len(prompt) : end] = torch.tensor(known)
    return PairBatch(ids, present, sampled, logprobs)


class PreferenceLoss(NamedTuple):
    """A loss over pairs.

    Attributes:
        loss: Scalar.
        accuracy: Share of pairs in which the policy's preference is the right one, scalar without gradient.
        margin: Mean implicit reward of the chosen candidates above the rejected ones, scalar without gradient.
    """

    loss: Tensor
    accuracy: Tensor
    margin: Tensor


def dpo_loss(
    logprobs: Tensor, reference: Tensor, sampled: Tensor, *, beta: float = 0.1, per_token: bool = False
) -> PreferenceLoss:
    """Return ``-log sigmoid(beta (log-ratio of chosen - log-ratio of rejected))``, a mean over pairs (DPO Eq. 7).

    The log-ratio of a candidate is the sum over its tokens of ``log pi - log reference``.

    Args:
        logprobs: `[2P, T]`, chosen rows first, under the policy.
        reference: `[2P, T]`, under the reference; the sampler's own make the policy that searched the reference.
        sampled: `[2P, T]` bool, the candidates' tokens.
        beta: How closely to stay at the reference.
        per_token: Whether log-ratios are means over a candidate's tokens in place of sums, so that length is no merit.
    """
    ratio = torch.where(sampled, logprobs - reference, 0.0).sum(dim=1)
    if per_token:
        ratio = ratio / sampled.sum(dim=1).clamp(min=1)
    chosen, rejected = ratio.chunk(2)
    margins = beta * (chosen - rejected)
    return PreferenceLoss(-logsigmoid(margins).mean(), (margins > 0).float().mean(), margins.mean().detach())
