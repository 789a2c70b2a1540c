"""Runs whose searches are rated by PPO's own critic."""

import pytest

from tests.agents.short_runs import short_run
from tsr_gym import ConfigError
from tsr_gym.agents.raters import make_rater
from tsr_gym.agents.runs.trainer import start_run


def test_a_run_with_a_critic_searches_by_that_one_also_as_a_part_of_a_sum(base_model, tmp_path):
    rater = "WeightedRater(parts={'own': ('CriticValue', 1.0)})"
    search = {"search": "beam(width=1, branching=2)", "rater": rater}
    trainer = start_run(short_run(tmp_path / "run", base_model, search=search), base_model)
    assert trainer.parts.collector.rater.raters["own"].critic is trainer.parts.learner.critic is not None


def test_a_run_without_a_critic_is_refused(base_model, tmp_path):
    changes = {"search": {"search": "beam", "rater": "CriticValue"}, "learn": {"algorithm": "grpo"}}
    with pytest.raises(ConfigError, match="algorithm=ppo"):
        start_run(short_run(tmp_path / "run", base_model, **changes), base_model)


def test_a_critic_that_is_spread_is_refused(base_model, tmp_path):
    changes = {"search": {"search": "beam", "rater": "CriticValue"}, "learn": {"offload": True}}
    with pytest.raises(ConfigError, match="spread or offloaded rates no searches"):
        start_run(short_run(tmp_path / "run", base_model, **changes), base_model)


def test_outside_of_training_a_critic_must_be_named():
    with pytest.raises(ConfigError, match="wanted a ChatPolicy"):
        make_rater("CriticValue")
    with pytest.raises(ConfigError, match=r"wanted CriticValue\(critic='FOLDER'\)"):
        make_rater("CriticValue", chat="a policy")
