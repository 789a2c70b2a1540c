"""Conformance checks: does an environment, wrappers included, keep what tsr-gym promises?

Both return None when all is well, and raise `tsr_gym.CheckFailed`, which names the rule and the culprit.
"""

from tsr_gym.testing.check_snapshot import check_snapshot
from tsr_gym.testing.check_text_env import check_text_env

__all__ = ["check_snapshot", "check_text_env"]
