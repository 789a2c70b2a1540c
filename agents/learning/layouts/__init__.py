"""Layouts: a batch's rows padded, packed or as a trie for the model, with the same losses and gradients."""

from tsr_gym.agents.learning.batch import LayoutChoice
from tsr_gym.agents.learning.layouts.attention import Kernel, attending, attention_of
from tsr_gym.agents.learning.layouts.forest import TokenForest, grow_forest, sees
from tsr_gym.agents.learning.layouts.layout import Forested, Layout, LayoutName, Padded, lay_out, why_only_padded
from tsr_gym.agents.learning.layouts.plan import RowPlan, plan_rows

__all__ = [
    "Forested",
    "Kernel",
    "Layout",
    "LayoutChoice",
    "LayoutName",
    "Padded",
    "RowPlan",
    "TokenForest",
    "attending",
    "attention_of",
    "grow_forest",
    "lay_out",
    "plan_rows",
    "sees",
    "why_only_padded",
]
