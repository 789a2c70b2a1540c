"""Estimators and losses compared with recorded numbers of other implementations for the same inputs, by version.

See the folders golden: TRL, verl, RAGEN, verl-agent (GiGPO) and TreePO. with_trl.py records TRL's losses anew.
"""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from tests.agents.learning.advantages.forests import Sampled, batch_of, by_trajectory, path
from tsr_gym.agents.learning.advantages import (
    Contrast,
    bi_level_gae,
    dr_grpo,
    estimate,
    gae,
    gigpo,
    grpo,
    reinforce_pp,
    rloo,
    treepo,
    value_targets,
)
from tsr_gym.agents.learning.losses import Given, mismatch_weights, policy_loss
from tsr_gym.agents.learning.settings import Objective

FOLDER = Path(__file__).parent / "advantages" / "golden"


def recorded(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


INPUTS, VERL, TRL = recorded("inputs"), recorded("verl"), recorded("trl")


def batch_of_input(name, *, least_reward=None):
    """Return the batch of an input and its values, in one group per number."""
    groups = {}
    for case in INPUTS[name]:
        turns = [
            Sampled(-1, turn["reward"] or least_reward or 0.0, bytes([turn["state"]]), tokens=turn["tokens"])
            for turn in case["turns"]
        ]
        groups.setdefault(case["group"], []).append(path(*turns))
    batch = batch_of(*groups.values())
    values = torch.full(batch.rewards.shape, 100.0)
    values[batch.sampled] = torch.tensor(list(chain.from_iterable(case["values"] for case in INPUTS[name])))
    return replace(batch, values=values)


def check(batch, advantages, expected, *, but_groups_of=0):
    """Compare what stands on the sampled tokens of each trajectory, groups of one size left out."""
    sizes = torch.bincount(batch.group)[batch.group].tolist()
    assert len(expected) == len(sizes)
    for row, numbers in enumerate(expected):
        if sizes[row] != but_groups_of:
            assert advantages[row][batch.sampled[row]].tolist() == pytest.approx(numbers, abs=2e-5)


@pytest.mark.parametrize(("name", "ours"), [("grpo", grpo), ("dr_grpo", dr_grpo), ("rloo", rloo)])
@pytest.mark.parametrize("given", ["even", "ragged"])
def test_those_that_compare_returns_are_verls_but_for_groups_of_one(name, ours, given):
    batch = batch_of_input(given)
    check(batch, ours(batch), VERL["advantages"][given][name], but_groups_of=1)


@pytest.mark.parametrize("given", ["even", "ragged"])
def test_with_raw_returns_groups_of_one_are_verls_too_and_so_is_reinforce_plus_plus(given):
    batch = batch_of_input(given)
    actual = estimate(batch, Contrast(scale="std", alone="raw"))
    check(batch, actual, VERL["advantages"][given]["grpo"])
    check(batch, reinforce_pp(batch, subtract="nothing"), VERL["advantages"][given]["reinforce_pp"])


@pytest.mark.parametrize(
    ("name", "ours"), [("grpo", lambda batch: grpo(batch, eps=1e-4)), ("dr_grpo", dr_grpo), ("rloo", rloo)]
)
def test_those_that_compare_returns_are_trls(name, ours):
    batch = batch_of_input("even")
    assert by_trajectory(batch, ours(batch)) == pytest.approx(TRL["advantages"][name], abs=2e-5)


def test_reinforce_plus_plus_with_the_groups_mean_is_verls_where_no_group_is_of_one():
    batch = batch_of_input("even")
    check(batch, reinforce_pp(batch), VERL["advantages"]["even"]["reinforce_pp_baseline"])
    alone = batch_of_input("ragged")
    actual = estimate(alone, Contrast(alone="raw"), whiten=True)
    check(alone, actual, VERL["advantages"]["ragged"]["reinforce_pp_baseline"])


@pytest.mark.parametrize("given", ["even", "ragged"])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.5)])
def test_generalised_advantages_plus_values_are_verls_returns(given, gamma, lam):
    batch = batch_of_input(given)
    actual = value_targets(batch, gae(batch, gamma=gamma, lam=lam))
    check(batch, actual, VERL["advantages"][given][f"gae_returns gamma={gamma} lam={lam}"])


@pytest.mark.parametrize("given", ["even", "ragged"])
@pytest.mark.parametrize(("gamma", "lam", "high"), [(1.0, 1.0, 0.95), (0.99, 0.9, 0.9), (1.0, 0.5, 0.8)])
def test_bi_level_advantages_plus_values_are_ragens_returns(given, gamma, lam, high):
    batch = batch_of_input(given, least_reward=0.25)
    actual = value_targets(batch, bi_level_gae(batch, gamma=gamma, lam=lam, high_level_gamma=high))
    check(batch, actual, recorded("ragen")["returns"][given][f"gamma={gamma} lam={lam} high={high}"])


@pytest.mark.parametrize("given", ["even", "ragged"])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"episodes": "step"}, "gamma=0.95 w=1.0 std=True across_steps=True"),
        ({"episodes": "trajectory"}, "gamma=0.95 w=1.0 std=True across_steps=False"),
        ({"gamma": 0.9, "step_weight": 0.5, "scale": "none"}, "gamma=0.9 w=0.5 std=False across_steps=False"),
    ],
)
def test_gigpo_is_that_of_verl_agent(given, settings, name):
    batch = batch_of_input(given)
    actual = gigpo(batch, alone="raw", **settings)
    expected = iter(recorded("verl_agent")["advantages"][given][name])
    sizes = [[turn["tokens"] for turn in case["turns"]] for case in INPUTS[given]]
    check(batch, actual, [[number for size in row for number in [next(expected)] * size] for row in sizes])


@pytest.mark.parametrize(("weighting", "strategy"), [("average", "average"), ("size", "group_size")])
@pytest.mark.parametrize("drop_flat", [False, True])
def test_treepo_is_its_authors(weighting, strategy, drop_flat):
    groups = {}
    for case in INPUTS["forest"]:
        *before, last = case["nodes"]
        turns = [*((node, 0.0) for node in before), (last, case["return"])]
        specs = [Sampled(node, reward, tokens=1 + node % 3) for node, reward in turns]
        groups.setdefault(case["group"], []).append(path(*specs))
    batch = batch_of(*groups.values())
    actual = treepo(batch, weighting=weighting, drop_flat=drop_flat, alone="raw")
    expected = recorded("treepo")["advantages"][f"{strategy} drop_flat={drop_flat}"]
    assert by_trajectory(batch, actual) == pytest.approx(expected, abs=2e-5)


LOSSES_OF_TRL = json.loads((Path(__file__).parent / "losses" / "golden" / "trl.json").read_text(encoding="utf-8"))
SAMPLED = torch.tensor(LOSSES_OF_TRL["inputs"]["said"]).bool()
LONGEST = LOSSES_OF_TRL["max_completion_length"]


def given(name):
    return torch.tensor(LOSSES_OF_TRL["inputs"][name])


def units():
    """Return turns and sequences: a row is a sequence, and an observation begins a new turn."""
    rows = torch.arange(4)[:, None].expand(4, 7)
    breaks = (~SAMPLED).cumsum(dim=1)
    return torch.where(SAMPLED, 10 * rows + breaks, -1), torch.where(SAMPLED, rows, -1)


def weights(aggregation):
    sampled = SAMPLED.float()
    return {
        "sequence": sampled / sampled.sum(dim=1, keepdim=True) / 4,
        "token": sampled / sampled.sum(),
        "constant": sampled / (4 * LONGEST),
    }[aggregation]


# Our equivalents of TRL's losses. TRL has no entropy bonus by default, and its bounds are ratios for CISPO only.
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


@pytest.mark.parametrize("name", LOSSES_OF_TRL["losses"])
def test_a_loss_and_its_gradient_are_trls(name):
    objective, recorded = OURS[name], LOSSES_OF_TRL["losses"][name]
    turn, sequence = units()
    advantages = given("row_advantages")[:, None].expand(4, 7) if name == "gspo" else given("advantages")
    now = given("now").requires_grad_()
    shares = weights(objective.aggregation)
    terms = Given(given("old"), advantages, shares, turn, sequence, reference_logprobs=given("reference"))
    result = policy_loss(objective, now, given("entropy"), terms)
    assert result.loss.item() == pytest.approx(recorded["loss"], abs=1e-6)
    result.loss.backward()
    assert torch.allclose(now.grad, torch.tensor(recorded["gradient"]), atol=1e-6)
    assert abs(recorded["loss"]) > 1e-3


def test_in_the_recorded_cases_bounds_are_met():
    """Otherwise the comparison would not test them."""
    for name in ("grpo", "gspo", "cispo", "two-sided clip"):
        turn, sequence = units()
        terms = Given(given("old"), given("advantages"), weights("token"), turn, sequence)
        result = policy_loss(OURS[name], given("now"), given("entropy"), terms)
        assert 0 < result.parts["clip_fraction"] < 1
    assert LOSSES_OF_TRL["losses"]["two-sided clip"]["loss"] != LOSSES_OF_TRL["losses"]["bnpo"]["loss"]


@pytest.mark.parametrize("mode", LOSSES_OF_TRL["mismatch"])
def test_weights_for_another_sampler_are_trls(mode):
    level, _, action = mode.partition("_")
    case = LOSSES_OF_TRL["mismatch"][mode]
    settings, recorded = case["settings"], torch.tensor(case["weights"])
    low, high = (settings[f"vllm_importance_sampling_clip_{end}"] for end in ("min", "max"))
    turn, sequence = units()
    choices = {"turn": turn, "sequence": sequence, "mode": action, "level": level, "low": low, "high": high}
    result = mismatch_weights(given("old"), given("sampler"), **choices)
    assert torch.allclose(result.weight[SAMPLED], recorded.expand(4, 7)[SAMPLED], atol=1e-6)
    assert 0 < result.cut[SAMPLED].float().mean() < 1
