"""Losses as pure functions of tensors; `policy_loss` combines the terms of an objective."""

from tsr_gym.agents.learning.losses.policy_loss import (
    Correction,
    Given,
    ObjectiveLoss,
    cispo_gains,
    clipped_value_loss,
    kl_estimate,
    log_ratios,
    mismatch_weights,
    policy_loss,
    ppo_gains,
    whiten,
)
from tsr_gym.agents.learning.losses.token_weights import (
    StepWeights,
    imitation_counts,
    policy_counts,
    sequence_units,
    step_weights,
    token_weights,
    turn_units,
)
from tsr_gym.agents.learning.objective import Aggregation, Objective

__all__ = [
    "Aggregation",
    "Correction",
    "Given",
    "Objective",
    "ObjectiveLoss",
    "StepWeights",
    "cispo_gains",
    "clipped_value_loss",
    "imitation_counts",
    "kl_estimate",
    "log_ratios",
    "mismatch_weights",
    "policy_counts",
    "policy_loss",
    "ppo_gains",
    "sequence_units",
    "step_weights",
    "token_weights",
    "turn_units",
    "whiten",
]
