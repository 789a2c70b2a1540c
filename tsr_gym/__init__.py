"""Snapshot-able text environments for language-model agents that learn by searching.

Importing this package registers the ``tsr/`` environments with Gymnasium.
"""

from importlib import import_module
from types import ModuleType

from tsr_gym.errors import (
    CheckFailed,
    CheckpointError,
    ConfigError,
    EngineFailed,
    EpisodeOver,
    GenerationFailed,
    InvalidCatalogue,
    InvalidCorpus,
    InvalidLevel,
    InvalidTree,
    MissingExtra,
    NotFinite,
    PromptTooLong,
    ReplayDiverged,
    RetrievalFailed,
    SnapshotError,
    TrainingDiverged,
    TsrGymError,
    UnknownSetting,
    Unsupported,
    WorkerLost,
)
from tsr_gym.registration import register_envs
from tsr_gym.snapshots import Snapshot
from tsr_gym.spaces import FreeText
from tsr_gym.stack import (
    Noise,
    SnapshotEnv,
    SnapshotWrapper,
    Support,
    clone,
    env_support,
    replayable,
    restore,
    snapshot,
)
from tsr_gym.state_env import Episode, Limits, StateEnv, Step
from tsr_gym.teaching import Teaching
from tsr_gym.text_env import TextEnv
from tsr_gym.tools import Tool
from tsr_gym.tree import Budget, Candidate, Expand, Node, Policy, Rater, Strategy, Tree
from tsr_gym.version import __version__

__all__ = [
    "Budget",
    "Candidate",
    "CheckFailed",
    "CheckpointError",
    "ConfigError",
    "EngineFailed",
    "Episode",
    "EpisodeOver",
    "Expand",
    "FreeText",
    "GenerationFailed",
    "InvalidCatalogue",
    "InvalidCorpus",
    "InvalidLevel",
    "InvalidTree",
    "Limits",
    "MissingExtra",
    "Node",
    "Noise",
    "NotFinite",
    "Policy",
    "PromptTooLong",
    "Rater",
    "ReplayDiverged",
    "RetrievalFailed",
    "Snapshot",
    "SnapshotEnv",
    "SnapshotError",
    "SnapshotWrapper",
    "StateEnv",
    "Step",
    "Strategy",
    "Support",
    "Teaching",
    "TextEnv",
    "Tool",
    "TrainingDiverged",
    "Tree",
    "TsrGymError",
    "UnknownSetting",
    "Unsupported",
    "WorkerLost",
    "__version__",
    "clone",
    "env_support",
    "register_envs",
    "replayable",
    "restore",
    "snapshot",
]

_ROOMS = frozenset({"agents", "testing", "wrappers"})


def __getattr__(name: str) -> ModuleType:
    """Import a room when it is first named, so that ``import tsr_gym`` alone stays cheap."""
    if name in _ROOMS:
        return import_module(f"tsr_gym.{name}")
    raise AttributeError(f"module 'tsr_gym' has no attribute {name!r}")


register_envs()
