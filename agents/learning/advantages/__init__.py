"""Estimators: from a batch to advantages `[B, T]`, zero where nothing was sampled.

Those that compare trajectories, turns or nodes with one another are choices of one mechanism, `estimate`, whose
vocabulary is `Contrast` and `Backup`; `gae`, `turn_gae` and `bi_level_gae` compare with a critic.
"""

from tsr_gym.agents.learning.advantages.gae import bi_level_gae, gae, turn_gae, turn_value_targets, value_targets
from tsr_gym.agents.learning.advantages.graph import graph
from tsr_gym.agents.learning.advantages.grpo import dr_grpo, grpo, reinforce_pp, rloo
from tsr_gym.agents.learning.advantages.mechanism.estimate import estimate
from tsr_gym.agents.learning.advantages.mechanism.rules import Backup, Contrast
from tsr_gym.agents.learning.advantages.trees import tree_backup, tree_grpo, tree_value_targets, treepo, treerl
from tsr_gym.agents.learning.advantages.turns import gigpo, mt_grpo, tspo

__all__ = [
    "Backup",
    "Contrast",
    "bi_level_gae",
    "dr_grpo",
    "estimate",
    "gae",
    "gigpo",
    "graph",
    "grpo",
    "mt_grpo",
    "reinforce_pp",
    "rloo",
    "tree_backup",
    "tree_grpo",
    "tree_value_targets",
    "treepo",
    "treerl",
    "tspo",
    "turn_gae",
    "turn_value_targets",
    "value_targets",
]
