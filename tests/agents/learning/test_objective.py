"""Objective: what can be chosen, and what cannot."""

import pytest

from tests.conftest import run_python
from tsr_gym import ConfigError
from tsr_gym.agents.learning.settings import Objective


def test_the_defaults_are_the_papers_and_settings_need_no_torch():
    objective = Objective()
    assert (objective.clip_low, objective.clip_high, objective.entropy) == (0.2, 0.28, 0.001)
    assert (objective.kl_weight, objective.imitation, objective.searched_weight) == (0.0, 0.0, 1.0)
    assert not objective.needs_whole_sequences
    rooms = "learning.settings lessons.filters bridges.export learning.spikes runs.health reports.report"
    imports = "".join(f"import tsr_gym.agents.{room}\n" for room in rooms.split())
    assert run_python(f"import sys\nsys.modules['torch'] = None\n{imports}print('torch-free')").strip() == "torch-free"


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ({"ratio": "turn"}, False),
        ({"ratio": "sequence_mean"}, True),
        ({"mismatch_level": "sequence"}, False),
        ({"mismatch_level": "sequence", "mismatch": "mask"}, True),
    ],
)
def test_ratios_of_sequences_need_all_rows_of_a_trajectory_together(settings, whole):
    assert Objective(**settings).needs_whole_sequences is whole


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"surrogate": "trpo"}, "wanted surrogate of"),
        ({"ratio": "word"}, "wanted ratio of"),
        ({"kl": "k4"}, "wanted kl of"),
        ({"mismatch": "clip"}, "wanted mismatch of"),
        ({"entropy": -0.1}, "wanted entropy >= 0"),
        ({"kl_weight": float("nan")}, "wanted kl_weight >= 0"),
        ({"searched_weight": -1.0}, "wanted searched_weight >= 0"),
        ({"clip_low": 1.5}, "wanted clip_low <= 1"),
        ({"dual_clip": 1.28}, "wanted dual_clip above 1 [+] clip_high = 1.28, got 1.28"),
        ({"mismatch_low": 2.0}, "wanted mismatch_low < mismatch_high, got 2.0 and 2.0"),
        ({"imitated": "most"}, "wanted imitated of"),
        ({"imitated": "expansions"}, "wanted imitation > 0, got 0"),
        ({"aggregation": "constant"}, "wanted longest >= 1"),
        ({"aggregation": "constant", "longest": 0}, "wanted longest >= 1"),
    ],
)
def test_what_is_impossible_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Objective(**settings)
