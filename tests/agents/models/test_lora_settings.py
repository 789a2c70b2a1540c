"""LoraSettings: numbers that make sense, without torch."""

import pytest

from tests.tsr_gym.own_process import run_python
from tsr_gym import ConfigError
from tsr_gym.agents.models.settings import LoraSettings


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"alpha": 0.0}, {"alpha": float("inf")}, {"alpha": float("nan")}])
def test_numbers_that_are_impossible_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"wanted (rank >= 1|alpha > 0), got"):
        LoraSettings(**wrong)


@pytest.mark.parametrize("targets", [(), "", "q_proj"])
def test_targets_are_names_or_all_linear_layers(targets):
    with pytest.raises(ConfigError, match="wanted LoRA targets as a tuple of names, or all-linear, got"):
        LoraSettings(targets=targets)


def test_settings_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import tsr_gym.agents.models.settings as it; print(it.LoraSettings())"
    )
    assert run_python(code).strip() == "LoraSettings(rank=16, alpha=32.0, targets='all-linear', seed=0)"
