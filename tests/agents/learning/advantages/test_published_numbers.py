"""Estimators against numbers that other implementations gave for the same inputs, recorded with their versions.

See tests/agents/learning/advantages/golden: TRL, verl, RAGEN, verl-agent (GiGPO) and TreePO.
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

FOLDER = Path(__file__).parent / "golden"


def recorded(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


INPUTS, VERL, TRL = recorded("inputs"), recorded("verl"), recorded("trl")


def batch_of_input(name, *, least_reward=None):
    """Return the batch of an input and its values, in one group per number."""
    groups = {}
    for one in INPUTS[name]:
        turns = [
            Sampled(-1, turn["reward"] or least_reward or 0.0, bytes([turn["state"]]), tokens=turn["tokens"])
            for turn in one["turns"]
        ]
        groups.setdefault(one["group"], []).append(path(*turns))
    batch = batch_of(*groups.values())
    values = torch.full(batch.rewards.shape, 100.0)
    values[batch.sampled] = torch.tensor(list(chain.from_iterable(one["values"] for one in INPUTS[name])))
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
def test_with_raw_returns_for_those_alone_groups_of_one_are_verls_too(given):
    batch = batch_of_input(given)
    found = estimate(batch, Contrast(scale="std", alone="raw"))
    check(batch, found, VERL["advantages"][given]["grpo"])


@pytest.mark.parametrize(
    ("name", "ours"), [("grpo", lambda batch: grpo(batch, eps=1e-4)), ("dr_grpo", dr_grpo), ("rloo", rloo)]
)
def test_those_that_compare_returns_are_trls(name, ours):
    batch = batch_of_input("even")
    assert by_trajectory(batch, ours(batch)) == pytest.approx(TRL["advantages"][name], abs=2e-5)


@pytest.mark.parametrize("given", ["even", "ragged"])
def test_reinforce_plus_plus_is_verls(given):
    batch = batch_of_input(given)
    check(batch, reinforce_pp(batch, subtract="nothing"), VERL["advantages"][given]["reinforce_pp"])


def test_reinforce_plus_plus_with_the_groups_mean_is_verls_where_no_group_is_of_one():
    batch = batch_of_input("even")
    check(batch, reinforce_pp(batch), VERL["advantages"]["even"]["reinforce_pp_baseline"])
    alone = batch_of_input("ragged")
    found = estimate(alone, Contrast(alone="raw"), whiten=True)
    check(alone, found, VERL["advantages"]["ragged"]["reinforce_pp_baseline"])


@pytest.mark.parametrize("given", ["even", "ragged"])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.5)])
def test_generalised_advantages_plus_values_are_verls_returns(given, gamma, lam):
    batch = batch_of_input(given)
    found = value_targets(batch, gae(batch, gamma=gamma, lam=lam))
    check(batch, found, VERL["advantages"][given][f"gae_returns gamma={gamma} lam={lam}"])


@pytest.mark.parametrize("given", ["even", "ragged"])
@pytest.mark.parametrize(("gamma", "lam", "high"), [(1.0, 1.0, 0.95), (0.99, 0.9, 0.9), (1.0, 0.5, 0.8)])
def test_bi_level_advantages_plus_values_are_ragens_returns(given, gamma, lam, high):
    batch = batch_of_input(given, least_reward=0.25)
    found = value_targets(batch, bi_level_gae(batch, gamma=gamma, lam=lam, high_level_gamma=high))
    check(batch, found, recorded("ragen")["returns"][given][f"gamma={gamma} lam={lam} high={high}"])


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
    found = gigpo(batch, alone="raw", **settings)
    expected = iter(recorded("verl_agent")["advantages"][given][name])
    per_token = [
        [number for turn in one["turns"] for number in [next(expected)] * turn["tokens"]] for one in INPUTS[given]
    ]
    check(batch, found, per_token)


@pytest.mark.parametrize(("weighting", "strategy"), [("average", "average"), ("size", "group_size")])
@pytest.mark.parametrize("drop_flat", [False, True])
def test_treepo_is_its_authors(weighting, strategy, drop_flat):
    groups = {}
    for one in INPUTS["forest"]:
        *before, last = one["nodes"]
        turns = [*((node, 0.0) for node in before), (last, one["return"])]
        said = [Sampled(node, reward, tokens=1 + node % 3) for node, reward in turns]
        groups.setdefault(one["group"], []).append(path(*said))
    batch = batch_of(*groups.values())
    found = treepo(batch, weighting=weighting, drop_flat=drop_flat, alone="raw")
    expected = recorded("treepo")["advantages"][f"{strategy} drop_flat={drop_flat}"]
    assert by_trajectory(batch, found) == pytest.approx(expected, abs=2e-5)
