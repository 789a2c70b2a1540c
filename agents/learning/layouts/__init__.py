"""Layouts: rows of a batch as a model reads them: padded, packed or as a trie. Losses and gradients are the same."""

from tsr_gym.agents.learning.batch import LayoutChoice
from tsr_gym.agents.learning.layouts.attention import Kernel, attending, attention_of
from tsr_gym.agents.learning.layouts.forest import LayoutName, RowPlan, TokenForest, grow_forest, plan_rows, sees
from tsr_gym.agents.learning.layouts.layout import Forested, Layout, Padded, lay_out, why_only_padded

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
