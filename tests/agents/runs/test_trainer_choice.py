"""Runs that choose their instances by what they learned of them."""

import pytest

from tests.agents.short_runs import records, result, short_run, trained
from tsr_gym import ConfigError
from tsr_gym.agents.runs.trainer import resume_run, start_run

CHOOSY = {
    "search": {"choose_among": 3},
    "learn": {"algorithm": "grpo"},
    "run": {"updates": 3, "eval_every": 0, "eval_instances": 2, "checkpoint_every": 1},
}


@pytest.fixture(scope="module")
def choosy(base_model, tmp_path_factory):
    """A run of GRPO that looks at three instances for each that it plays."""
    return trained(tmp_path_factory.mktemp("choosy") / "run", base_model, **CHOOSY)


def test_a_run_says_what_it_foretold(choosy):
    lines = records(choosy)
    assert all(0 <= line["mixed_foretold_of_all"] <= line["mixed_foretold"] <= 1 for line in lines)
    assert all(isinstance(line["guide_explained"], float) for line in lines)


def test_a_run_that_chooses_and_is_stopped_goes_on_bit_for_bit(choosy, base_model, tmp_path):
    run = tmp_path / "run"
    assert not start_run(short_run(run, base_model, **CHOOSY), base_model).run(stop=lambda: True)
    assert resume_run(run).run()
    assert result(run) == result(choosy)


def test_a_run_with_a_critic_chooses_by_that_one(base_model, tmp_path):
    changes = CHOOSY | {"learn": {"algorithm": "ppo"}}
    trainer = start_run(short_run(tmp_path / "run", base_model, **changes), base_model)
    assert trainer.guide is None
    assert trainer.collector.values.__self__.critic is trainer.learner.critic


def test_a_critic_out_of_reach_is_refused(base_model, tmp_path):
    changes = CHOOSY | {"learn": {"offload": True}}
    with pytest.raises(ConfigError, match="wanted one process with it"):
        start_run(short_run(tmp_path / "run", base_model, **changes), base_model)
