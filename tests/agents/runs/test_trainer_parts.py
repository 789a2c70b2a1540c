"""A run goes on bit for bit whatever part of a model learns: low-rank matrices, a value head, beside a reference."""

import pytest

from tests.agents.short_runs import UPDATES, result, trained
from tsr_gym.agents.learning.objective import Objective
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.trainer import resume_run

LORA = {"lora_rank": 4}
HEAD = {"critic": "head", "critic_gradient": 0.1}
KL = {"algorithm": "grpo", "objective": Objective(kl_weight=0.1)}


@pytest.mark.parametrize(
    "learn",
    [LORA | HEAD, KL, *(pytest.param(learn, marks=pytest.mark.deep) for learn in (LORA, HEAD, LORA | KL))],
    ids=["lora and head", "kl", "lora", "head", "lora and kl"],
)
def test_a_run_goes_on_bit_for_bit_whatever_part_of_a_model_learns(base_model, tmp_path, learn):
    learn = {"lr": 0.002, **learn}
    whole = trained(tmp_path / "whole", base_model, learn=learn)
    half = trained(tmp_path / "half", base_model, learn=learn, run={"updates": 2})
    assert resume_run(half, updates=UPDATES).run()
    assert result(half) == result(whole)
    if "lora_rank" in learn:
        one, other = (checkpoints(run)[-1] / "model" / "lora" / "adapter_model.safetensors" for run in (whole, half))
        assert one.read_bytes() == other.read_bytes()
