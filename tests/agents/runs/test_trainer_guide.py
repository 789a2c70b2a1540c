"""Runs that search by what they learned themselves: PPO's critic, or a value head that is learned beside the policy."""

import pytest
from safetensors.torch import load_file

from tests.agents.short_runs import records, result, short_run, trained
from tsr_gym import ConfigError
from tsr_gym.agents.raters import make_rater
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run

OWN = {
    "search": {"search": "beam(width=1, branching=2)", "rater": "CriticValue", "naive": 1},
    "learn": {"algorithm": "grpo"},
    "run": {"updates": 3, "eval_every": 0, "eval_instances": 2, "checkpoint_every": 1},
}


@pytest.fixture(scope="module")
def guided(base_model, tmp_path_factory):
    """A run of GRPO whose searches go by its own value head."""
    return trained(tmp_path_factory.mktemp("guided") / "run", base_model, **OWN)


def test_a_run_without_a_critic_learns_a_head_that_its_searches_go_by(guided):
    lines = records(guided)
    assert all(isinstance(line["guide_explained"], float) for line in lines)
    trainer = resume_run(guided)
    assert trainer.learner.critic is None
    assert trainer.collector.rater.critic is trainer.guide.critic
    saved = load_file(checkpoints(guided)[-1] / "guide.safetensors")
    assert saved["head.weight"].abs().max() > 0
    for name, value in trainer.guide.critic.state_dict().items():
        assert value.tolist() == saved[name].tolist()


def test_a_guided_run_that_is_stopped_goes_on_bit_for_bit(guided, base_model, tmp_path):
    run = tmp_path / "run"
    assert not start_run(short_run(run, base_model, **OWN), base_model).run(stop=lambda: True)
    assert resume_run(run).run()
    assert result(run) == result(guided)
    one, other = (load_file(checkpoints(folder)[-1] / "guide.safetensors") for folder in (run, guided))
    assert all(value.tolist() == other[name].tolist() for name, value in one.items())


def test_a_run_with_a_critic_searches_by_that_one_also_as_a_part_of_a_sum(base_model, tmp_path):
    rater = "WeightedRater(parts={'own': ('CriticValue', 1.0)})"
    search = {"search": "beam(width=1, branching=2)", "rater": rater}
    trainer = start_run(short_run(tmp_path / "run", base_model, search=search), base_model)
    assert trainer.guide is None
    assert trainer.collector.rater.raters["own"].critic is trainer.learner.critic is not None


def test_a_run_whose_searches_go_by_something_else_learns_no_head(base_model, tmp_path):
    changes = {**OWN, "search": {"search": "beam(width=1, branching=2)", "rater": "SelfConsistency"}}
    trainer = start_run(short_run(tmp_path / "run", base_model, **changes), base_model)
    assert trainer.guide is None
    assert not (checkpoints(tmp_path / "run")[-1] / "guide.safetensors").exists()


def test_a_critic_that_is_spread_is_refused(base_model, tmp_path):
    changes = {"search": {"search": "beam", "rater": "CriticValue"}, "learn": {"offload": True}}
    with pytest.raises(ConfigError, match="spread or offloaded rates no searches"):
        start_run(short_run(tmp_path / "run", base_model, **changes), base_model)


def test_outside_of_training_a_critic_must_be_named():
    with pytest.raises(ConfigError, match="wanted a ChatPolicy"):
        make_rater("CriticValue")
    with pytest.raises(ConfigError, match=r"wanted CriticValue\(critic='FOLDER'\)"):
        make_rater("CriticValue", chat="a policy")
