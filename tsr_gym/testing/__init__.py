"""Conformance checks of environments, wrappers included, and of engines.

A failed check raises `tsr_gym.CheckFailed`, which names the rule and the class, attribute or function.
"""

from tsr_gym.testing.check_engine import check_engine
from tsr_gym.testing.check_snapshot import check_snapshot
from tsr_gym.testing.check_text_env import check_text_env

__all__ = ["check_engine", "check_snapshot", "check_text_env"]
