"""Progress: counted tokens, the share that is done, and the ends of runs and updates."""

import pytest

from tsr_gym import Budget
from tsr_gym.agents.config import RunConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.runs.progress import Progress, counted, lr_scale, share_done, total_of, update_end


@pytest.mark.parametrize(
    ("progress", "run", "wanted"),
    [
        (Progress(update=3), RunConfig(updates=12), 0.25),
        (Progress(update=3, sampled_tokens=900), RunConfig(updates=12, total_tokens=1000), 0.9),
        # The last group exceeded the limit.
        (Progress(update=3, sampled_tokens=1100), RunConfig(updates=12, total_tokens=1000), 1.0),
        (Progress(), RunConfig(updates=0), 0.0),
        (Progress(3, sampled_tokens=200, prompt_tokens=3000), RunConfig(total_tokens=1000, prompt_price=0.1), 0.5),
    ],
)
def test_the_share_done_is_of_the_tokens_or_without_a_total_of_the_updates(progress, run, wanted):
    assert share_done(progress, run) == wanted


def test_learning_rates_fall_in_a_straight_line_to_their_floor_if_they_are_to():
    config = LearnConfig(lr_decay_from=0.5)
    scales = [lr_scale(share, config) for share in (0.0, 0.5, 0.6, 0.75, 0.95, 1.0)]
    assert scales == pytest.approx([1.0, 1.0, 0.8, 0.5, 0.1, 0.1])
    assert {lr_scale(share, LearnConfig()) for share in (0.0, 0.5, 1.0)} == {1.0}


def test_tokens_count_at_their_prices():
    spent = Budget(sampled_tokens=300, prompt_tokens=2000)
    assert counted(spent, RunConfig()) == 300
    assert counted(spent, RunConfig(sampled_price=4, prompt_price=0.5)) == 1200 + 1000


@pytest.mark.parametrize(
    ("run", "targets", "wanted"),
    [
        (RunConfig(), None, None),
        (RunConfig(total_tokens=900), None, 900),
        # Two updates of the other run are matched.
        (RunConfig(updates=2), [100, 250, 400], 250),
        (RunConfig(updates=2, total_tokens=200), [100, 250, 400], 200),
        (RunConfig(updates=3, total_tokens=900), [100, 250, 400], 400),
        (RunConfig(updates=0), [100], None),
    ],
)
def test_a_run_ends_at_its_total_or_at_that_of_the_run_that_it_matches(run, targets, wanted):
    assert total_of(run, targets) == wanted


def test_an_update_ends_at_the_tokens_of_the_matched_one_or_after_update_tokens():
    assert [update_end(RunConfig(), [100, 250], update) for update in (0, 1)] == [100, 250]
    assert [update_end(RunConfig(update_tokens=70), None, update) for update in (0, 1)] == [70, 140]
    assert update_end(RunConfig(total_tokens=9), None, 0) is None
