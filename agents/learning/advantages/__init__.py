"""Estimators: functions from a batch to advantages `[B, T]`, zero where nothing was sampled.

Begin with `grpo.py`: the formula, its computation, and the one mechanism (`estimate`, `Contrast`, `Backup`) of all
estimators that compare trajectories, turns or nodes. `gae`, `turn_gae` and `bi_level_gae` compare with a critic.
"""

from tsr_gym.agents.learning.advantages.grpo import Contrast, dr_grpo, estimate, grpo, reinforce_pp, rloo
from tsr_gym.agents.learning.advantages.trees import tree_backup, tree_grpo, tree_value_targets, treepo, treerl
from tsr_gym.agents.learning.advantages.turn_table import Backup
from tsr_gym.agents.learning.advantages.turns import (
    bi_level_gae,
    gae,
    gigpo,
    graph,
    mt_grpo,
    tspo,
    turn_gae,
    turn_rloo,
    turn_value_targets,
    value_targets,
)

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
    "turn_rloo",
    "turn_value_targets",
    "value_targets",
]
