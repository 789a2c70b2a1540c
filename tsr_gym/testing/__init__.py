"""Conformance checks: does an environment, wrappers included, or an engine keep what tsr-gym promises?

All raise `tsr_gym.CheckFailed` where not, which names the rule and the culprit.
"""

from tsr_gym.testing.check_engine import check_engine
from tsr_gym.testing.check_snapshot import check_snapshot
from tsr_gym.testing.check_text_env import check_text_env

__all__ = ["check_engine", "check_snapshot", "check_text_env"]
