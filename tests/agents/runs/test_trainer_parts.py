"""A run goes on bit for bit whatever part of a model learns: low-rank matrices, a value head, beside a reference."""

import json
from pathlib import Path

import pytest
import torch

from tests.agents.short_runs import UPDATES, result, trained
from tsr_gym.agents.learning.objective import Objective
from tsr_gym.agents.models.language_model import load_policy
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


def test_an_adapter_belongs_to_the_model_that_it_names_however_often_its_run_was_resumed(base_model, tmp_path):
    import peft

    learn = {"algorithm": "grpo", "lr": 0.05, **LORA}
    run = trained(tmp_path / "run", base_model, learn=learn, run={"updates": 1, "eval_every": 0, "keep_checkpoints": 1})
    for updates in (2, 3):
        assert resume_run(run, updates=updates).run()
    (last,) = checkpoints(run)
    adapter = last / "model" / "lora"
    named = Path(json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"])
    assert named == base_model
    merged, plain = (load_policy(folder, device=torch.device("cpu")).model for folder in (last / "model", named))
    ids = torch.arange(1, 30).reshape(1, -1)
    with torch.no_grad():
        wanted, began = merged(input_ids=ids).logits, plain(input_ids=ids).logits
        found = peft.PeftModel.from_pretrained(plain, adapter)(input_ids=ids).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert (wanted - began).abs().max() > 0.01
