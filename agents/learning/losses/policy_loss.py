"""The loss of an objective: one call for all of its terms, in any layout of the tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.batch import Batch
from tsr_gym.agents.learning.losses.ratios import (
    Correction,
    Gains,
    cispo_gains,
    kl_estimate,
    log_ratios,
    mismatch_weights,
    per_token_gradient,
    ppo_gains,
)
from tsr_gym.agents.learning.losses.token_weights import StepWeights, sequence_units, turn_units
from tsr_gym.agents.learning.objective import Objective


class Given(NamedTuple):
    """The tensors that a loss takes beside the policy's log-probabilities; all of one shape, `[B, T]` or any other.

    Attributes:
        old_logprobs: Log-probabilities before the update.
        advantages: A_t of each token.
        weights: w_t of each token; over all micro-batches of a step these are the `StepWeights`.
        turn: int64, equal for tokens of one turn of one trajectory; -1 where nothing was sampled.
        sequence: int64, equal for tokens of one trajectory; -1 where nothing was sampled.
        imitation: u_t, the weight in the imitation loss; None for no imitation.
        sampler_logprobs: Log-probabilities of the engine that sampled, where `old_logprobs` are the learner's own.
        reference_logprobs: Log-probabilities under the reference policy; None for no divergence.
    """

    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    turn: Tensor
    sequence: Tensor
    imitation: Tensor | None = None
    sampler_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None

    @classmethod
    def of(
        cls,
        part: Batch,
        advantages: Tensor,
        weights: StepWeights,
        *,
        sampler_logprobs: Tensor | None = None,
        reference_logprobs: Tensor | None = None,
    ) -> "Given":
        """Return the tensors of the rows of a micro-batch, all `[B, T]`."""
        units = turn_units(part), sequence_units(part)
        return cls(
            part.old_logprobs,
            advantages,
            weights.policy,
            *units,
            weights.imitation,
            sampler_logprobs,
            reference_logprobs,
        )


class ObjectiveLoss(NamedTuple):
    """A loss and its parts.

    Attributes:
        loss: Scalar, with gradient.
        parts: Scalars without gradient by name: ``policy_loss``, ``entropy``, ``clip_fraction`` and, where there is
            such a term, ``kl``, ``imitation_loss``, ``mismatch_kl``, ``mismatch_cut``. Every one adds up over the
            micro-batches of an optimizer step.
    """

    loss: Tensor
    parts: dict[str, Tensor]


def policy_loss(objective: Objective, logprobs: Tensor, entropy: Tensor, given: Given) -> ObjectiveLoss:
    """Return the loss of an objective and its parts: surrogate, entropy bonus, divergence and imitation.

    With rho_t the importance ratio of token t's unit (`log_ratios`), c_t the weight for another sampler (1 without),
    H_t the entropy, k_t the estimate of the divergence and sums over sampled tokens:

        loss = policy_loss - entropy * H + kl_weight * KL + imitation * I
        policy_loss = -sum_t w_t c_t min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)    ppo; for cispo, with sg for
                      -sum_t w_t c_t sg[clip(rho_t, 1 - low, 1 + high)] A_t log pi_t       stopped gradients
        H = sum_t w_t H_t    KL = sum_t w_t k_t, or w_t rho_t k_t with kl_corrected    I = -sum_t u_t log pi_t

    Args:
        objective: Which terms, with which weights.
        logprobs: Log-probabilities of the sampled tokens under the parameters that are trained.
        entropy: Entropies of the distributions that they were sampled from.
        given: The other tensors.

    Raises:
        ValueError: A term is wanted for which something is not given.
    """
    sampled = given.turn >= 0
    logprobs = torch.where(sampled, logprobs, 0.0)
    ratio = _ratio(objective, logprobs, given)
    gains = _gains(objective, ratio, logprobs, given)
    parts = {
        "entropy": (given.weights * torch.where(sampled, entropy, 0.0)).sum(),
        "clip_fraction": (given.weights * gains.clipped).sum(),
    }
    gain = gains.gain
    if objective.mismatch != "none":
        correction = _correction(objective, given)
        gain = gain * correction.weight
        difference = torch.where(sampled, _wanted(given.sampler_logprobs, "mismatch") - given.old_logprobs, 0.0)
        parts["mismatch_kl"] = (given.weights * difference).sum()
        parts["mismatch_cut"] = (given.weights * correction.cut).sum()
    parts["policy_loss"] = -(given.weights * gain).sum()
    loss = parts["policy_loss"] - objective.entropy * parts["entropy"]
    if objective.kl_weight:
        reference = torch.where(sampled, _wanted(given.reference_logprobs, "kl_weight"), 0.0)
        divergence = kl_estimate(logprobs, reference, objective.kl) * (ratio if objective.kl_corrected else 1.0)
        parts["kl"] = (given.weights * divergence).sum()
        loss = loss + objective.kl_weight * parts["kl"]
    if objective.imitation:
        parts["imitation_loss"] = -(_wanted(given.imitation, "imitation") * logprobs).sum()
        loss = loss + objective.imitation * parts["imitation_loss"]
    return ObjectiveLoss(loss, {name: part.detach() for name, part in parts.items()})


def _ratio(objective: Objective, logprobs: Tensor, given: Given) -> Tensor:
    log_ratio = log_ratios(logprobs - given.old_logprobs, objective.ratio, turn=given.turn, sequence=given.sequence)
    if objective.gradient == "token" and objective.ratio != "token":
        log_ratio = per_token_gradient(log_ratio, logprobs)
    return torch.exp(log_ratio)


def _gains(objective: Objective, ratio: Tensor, logprobs: Tensor, given: Given) -> Gains:
    low, high = objective.clip_low, objective.clip_high
    if objective.surrogate == "cispo":
        return cispo_gains(ratio, logprobs, given.advantages, clip_low=low, clip_high=high)
    return ppo_gains(ratio, given.advantages, clip_low=low, clip_high=high, dual_clip=objective.dual_clip)


def _correction(objective: Objective, given: Given) -> Correction:
    return mismatch_weights(
        given.old_logprobs,
        _wanted(given.sampler_logprobs, "mismatch"),
        turn=given.turn,
        sequence=given.sequence,
        mode=objective.mismatch,
        level=objective.mismatch_level,
        low=objective.mismatch_low,
        high=objective.mismatch_high,
    )


_SOURCES = {
    "mismatch": "given.sampler_logprobs, beside old_logprobs that the learner computed again",
    "kl_weight": "given.reference_logprobs of a reference policy",
    "imitation": "given.imitation weights",
}


def _wanted(value: Tensor | None, setting: str) -> Tensor:
    if value is None:
        raise ValueError(f"the objective's {setting} needs {_SOURCES[setting]}, got None")
    return value
