"""Our losses beside numbers that TRL 1.16.0 gave for the same log-probabilities (recorded by with_trl_losses.py)."""

import json
from pathlib import Path

import pytest
import torch

from tsr_gym.agents.learning.losses import Given, mismatch_weights, policy_loss
from tsr_gym.agents.learning.objective import Objective

TRL = json.loads((Path(__file__).parent / "golden" / "trl.json").read_text())
SAID = torch.tensor(TRL["inputs"]["said"]).bool()
LONGEST = TRL["max_completion_length"]


def given(name):
    return torch.tensor(TRL["inputs"][name])


def units():
    """Return turns and sequences: a row is a sequence, and what the environment said begins a new turn."""
    rows = torch.arange(4)[:, None].expand(4, 7)
    breaks = (~SAID).cumsum(dim=1)
    return torch.where(SAID, 10 * rows + breaks, -1), torch.where(SAID, rows, -1)


def weights(aggregation):
    said = SAID.float()
    return {
        "sequence": said / said.sum(dim=1, keepdim=True) / 4,
        "token": said / said.sum(),
        "constant": said / (4 * LONGEST),
    }[aggregation]


# Ours that should be theirs; TRL has no entropy bonus unless told, and its bounds are ratios for CISPO alone.
OURS = {
    "grpo": Objective(entropy=0.0),
    "bnpo": Objective(entropy=0.0, aggregation="token"),
    "dapo": Objective(entropy=0.0, aggregation="token"),
    "dr_grpo": Objective(entropy=0.0, aggregation="constant", longest=LONGEST),
    "gspo": Objective(entropy=0.0, ratio="sequence_mean", clip_low=0.03, clip_high=0.04),
    "cispo": Objective(entropy=0.0, surrogate="cispo", clip_low=1.0, clip_high=0.3, aggregation="token"),
    "two-sided clip": Objective(entropy=0.0, dual_clip=1.35, aggregation="token"),
    "kl": Objective(entropy=0.0, kl_weight=0.3, aggregation="token"),
    "kl corrected": Objective(entropy=0.0, kl_weight=0.3, kl_corrected=True, aggregation="token"),
    "entropy": Objective(entropy=0.05, aggregation="token"),
}


@pytest.mark.parametrize("name", TRL["losses"])
def test_a_loss_and_its_gradient_are_trls(name):
    objective, recorded = OURS[name], TRL["losses"][name]
    turn, sequence = units()
    advantages = given("row_advantages")[:, None].expand(4, 7) if name == "gspo" else given("advantages")
    now = given("now").requires_grad_()
    terms = Given(
        given("old"),
        advantages,
        weights(objective.aggregation),
        turn,
        sequence,
        reference_logprobs=given("reference"),
    )
    found = policy_loss(objective, now, given("entropy"), terms)
    assert found.loss.item() == pytest.approx(recorded["loss"], abs=1e-6)
    found.loss.backward()
    assert torch.allclose(now.grad, torch.tensor(recorded["gradient"]), atol=1e-6)
    assert abs(recorded["loss"]) > 1e-3


def test_in_the_recorded_cases_bounds_are_met():
    """Otherwise the comparison would say nothing about them."""
    for name in ("grpo", "gspo", "cispo", "two-sided clip"):
        turn, sequence = units()
        terms = Given(given("old"), given("advantages"), weights("token"), turn, sequence)
        found = policy_loss(OURS[name], given("now"), given("entropy"), terms)
        assert 0 < found.parts["clip_fraction"] < 1
    assert TRL["losses"]["two-sided clip"]["loss"] != TRL["losses"]["bnpo"]["loss"]


@pytest.mark.parametrize("mode", TRL["mismatch"])
def test_weights_for_another_sampler_are_trls(mode):
    level, _, action = mode.partition("_")
    settings, recorded = TRL["mismatch"][mode]["settings"], torch.tensor(TRL["mismatch"][mode]["weights"])
    turn, sequence = units()
    found = mismatch_weights(
        given("old"),
        given("sampler"),
        turn=turn,
        sequence=sequence,
        mode=action,
        level=level,
        low=settings["vllm_importance_sampling_clip_min"],
        high=settings["vllm_importance_sampling_clip_max"],
    )
    assert torch.allclose(found.weight[SAID], recorded.expand(4, 7)[SAID], atol=1e-6)
    assert 0 < found.cut[SAID].float().mean() < 1
