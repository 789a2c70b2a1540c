"""Schedule: what the share of a run that is done decides."""

import pytest

from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.runs.checkpoint import Progress
from tsr_gym.agents.runs.config import RunConfig
from tsr_gym.agents.runs.schedule import lr_scale, share_done


@pytest.mark.parametrize(
    ("progress", "run", "wanted"),
    [
        (Progress(update=3), RunConfig(updates=12), 0.25),
        (Progress(update=3, sampled_tokens=900), RunConfig(updates=12, total_tokens=1000), 0.9),
        # The last group went beyond the limit.
        (Progress(update=3, sampled_tokens=1100), RunConfig(updates=12, total_tokens=1000), 1.0),
        (Progress(), RunConfig(updates=0), 0.0),
        (
            Progress(update=3, sampled_tokens=200, prompt_tokens=3000),
            RunConfig(total_tokens=1000, prompt_price=0.1),
            0.5,
        ),
    ],
)
def test_a_run_is_done_by_its_tokens_or_where_they_are_not_limited_by_its_updates(progress, run, wanted):
    assert share_done(progress, run) == wanted


@pytest.mark.parametrize(
    ("share", "wanted"), [(0.0, 1.0), (0.5, 1.0), (0.6, 0.8), (0.75, 0.5), (0.95, 0.1), (1.0, 0.1)]
)
def test_learning_rates_fall_in_a_straight_line_to_their_floor(share, wanted):
    assert lr_scale(share, LearnConfig(lr_decay_from=0.5)) == pytest.approx(wanted)


def test_without_a_decay_learning_rates_stay():
    assert {lr_scale(share, LearnConfig()) for share in (0.0, 0.5, 1.0)} == {1.0}
