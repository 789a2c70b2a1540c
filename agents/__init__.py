"""From searched trajectories to a better policy: strategies, search, credit, learning and evaluation.

Imported as ``tsr_gym.agents``. Search, strategies and trajectories need nothing but the core; models and learning need
the extra ``agents``. The folders stand in the order of a trajectory; the modules that are used most have short names.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

if __name__ != "tsr_gym.agents":
    raise ImportError("import this package as tsr_gym.agents: under two names there would be two of every class")

# Short names of modules, which they also had before there were folders: tsr_gym.agents.search is episodes.search.
SHORT = {
    **{name: f"policies.{name}" for name in ("chat_policy", "engine", "prompts", "random_policy")},
    **{name: f"models.{name}" for name in ("critic", "logprobs", "lora")},
    **{name: f"episodes.{name}" for name in ("collect", "intervals", "moments", "search", "trajectory")},
    **{"evaluate": "episodes.play", "played": "episodes.play"},
    **{name: f"lessons.{name}" for name in ("credit", "filters")},
    **{name: f"learning.{name}" for name in ("advantages", "batch", "layouts", "learner", "losses", "objective")},
    **{name: f"runs.{name}" for name in ("checkpoint", "config", "trainer")},
    "base_model": "teaching.base_model",
    **{name: f"reports.{name}" for name in ("calibrate_env", "calibration", "diagnosis", "report")},
}


class _ShortNames(MetaPathFinder, Loader):
    """Finds a module under its short name: the very same module, so that there is one of every class."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module whose short name this is; None for all others."""
        return None if _long_name(fullname) is None else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        module = import_module(str(_long_name(spec.name)))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec, which the import system has replaced by that of the short name."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)


def _long_name(fullname: str) -> str | None:
    if not fullname.startswith(f"{__name__}."):
        return None
    first, dot, rest = fullname.removeprefix(f"{__name__}.").partition(".")
    return f"{__name__}.{SHORT[first]}{dot}{rest}" if first in SHORT else None


# Before the finder of files, which would load parts of a package a second time under its short name.
sys.meta_path.insert(0, _ShortNames())
