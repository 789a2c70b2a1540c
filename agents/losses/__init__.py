"""Losses as pure functions of tensors, one idea a file; `policy_loss` puts an objective's together."""

from tsr_gym.agents.losses.best_rejected import best_rejected_baseline
from tsr_gym.agents.losses.clipped_value_loss import clipped_value_loss, whiten
from tsr_gym.agents.losses.dpo_loss import PairBatch, PreferenceLoss, collate_pairs, dpo_loss
from tsr_gym.agents.losses.importance_ratio import log_ratios
from tsr_gym.agents.losses.kl_penalty import kl_estimate, kl_rewards
from tsr_gym.agents.losses.mismatch import Correction, mismatch_weights
from tsr_gym.agents.losses.policy_loss import Given, ObjectiveLoss, policy_loss
from tsr_gym.agents.losses.surrogates import PolicyLoss, cispo_gains, clipped_policy_loss, ppo_gains
from tsr_gym.agents.losses.token_weights import (
    StepWeights,
    sequence_units,
    step_weights,
    token_weights,
    turn_units,
)
from tsr_gym.agents.objective import Aggregation, Objective

__all__ = [
    "Aggregation",
    "Correction",
    "Given",
    "Objective",
    "ObjectiveLoss",
    "PairBatch",
    "PolicyLoss",
    "PreferenceLoss",
    "StepWeights",
    "best_rejected_baseline",
    "cispo_gains",
    "clipped_policy_loss",
    "clipped_value_loss",
    "collate_pairs",
    "dpo_loss",
    "kl_estimate",
    "kl_rewards",
    "log_ratios",
    "mismatch_weights",
    "policy_loss",
    "ppo_gains",
    "sequence_units",
    "step_weights",
    "token_weights",
    "turn_units",
    "whiten",
]
