"""Estimators: from a batch to advantages ``[B, T]``, zero where nothing was sampled; one file each."""

from tsr_gym.agents.advantages.gae import gae, value_targets
from tsr_gym.agents.advantages.grpo import grpo

__all__ = ["gae", "grpo", "value_targets"]
