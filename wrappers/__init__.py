"""Wrappers from environment to environment: answer format, scorers, and the tree.

Imported as ``tsr_gym.wrappers``.
"""

if __name__ != "tsr_gym.wrappers":
    raise ImportError("import this package as tsr_gym.wrappers: under two names there would be two of every class")

from tsr_gym.wrappers.answer_format import AnswerFormat
from tsr_gym.wrappers.dead_ends import DeadEnds
from tsr_gym.wrappers.minigrid_text import MiniGridText
from tsr_gym.wrappers.score_wrapper import RewardScore, ScoreWrapper
from tsr_gym.wrappers.scorers import PotentialScore, WeightedScore
from tsr_gym.wrappers.storable_info import StorableInfo
from tsr_gym.wrappers.tool_calls import ToolCalls
from tsr_gym.wrappers.tree_search import TreeSearchWrapper
from tsr_gym.wrappers.world_scores import (
    CountdownScore,
    DatabaseScore,
    FrozenLakeScore,
    RetrievalQAScore,
    ShellScore,
    SokobanScore,
    TextWorldScore,
    WebShopScore,
)

__all__ = [
    "AnswerFormat",
    "CountdownScore",
    "DatabaseScore",
    "DeadEnds",
    "FrozenLakeScore",
    "MiniGridText",
    "PotentialScore",
    "RetrievalQAScore",
    "RewardScore",
    "ScoreWrapper",
    "ShellScore",
    "SokobanScore",
    "StorableInfo",
    "TextWorldScore",
    "ToolCalls",
    "TreeSearchWrapper",
    "WebShopScore",
    "WeightedScore",
]
