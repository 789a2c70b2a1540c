"""Health metrics against small examples: groups, trees and policies whose information is known."""

from dataclasses import replace
from math import log

import pytest
import torch

from tests.agents.episodes.test_trajectory import node, tree_of, worth
from tsr_gym import TrainingDiverged
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.runs.health import answer_agreement, first_answers, group_metrics, prompt_information, tree_metrics


def test_groups_are_distinguished_by_spread_and_outcome():
    groups = [
        worth(0.0, 2.0, success=[False, True]),
        worth(3.0, 3.0, success=[True, True]),
        worth(-0.1, -0.3, success=[False, False]),
        worth(0.3, 0.1 + 0.2, success=[False, False]),
    ]
    metrics = group_metrics(groups)
    assert metrics["group_spread"] == pytest.approx((1.0 + 0.0 + 0.1 + 0.0) / 4)
    assert metrics["equal_groups"] == 0.5
    assert (metrics["solved_groups"], metrics["failed_groups"], metrics["mixed_groups"]) == (0.25, 0.5, 0.25)
    assert group_metrics([]) == {}
    with pytest.raises(TrainingDiverged, match="trajectory 0 of task 3 is nan"):
        group_metrics([worth(float("nan"), 1.0)])


def saying(prompt, *answers):
    turns = [(Turn((prompt,), tuple(answer), (-1.0,) * len(answer), 0.0, True, 1),) for answer in answers]
    return Group(prompt, tuple(Trajectory(turn, False, 0.0, "naive") for turn in turns))


def test_agreement_is_counted_over_pairs_of_answers():
    # Prompt 1 is answered a, a, b; prompt 2 a, c. Of four pairs within, one is equal; of six across, two.
    metrics = group_metrics([saying(1, [7], [7], [8]), saying(2, [7], [9])])
    assert metrics["same_prompt_agreement"] == pytest.approx(1 / 4)
    assert metrics["other_prompt_agreement"] == pytest.approx(2 / 6)
    # Two groups that begin in the same state have the same prompt.
    assert group_metrics([saying(1, [7]), saying(1, [7])])["same_prompt_agreement"] == 1.0
    assert (answer_agreement([]), answer_agreement([(1, "a")])) == ({}, {})
    assert answer_agreement([(1, "a"), (1, "a")]) == {"same_prompt_agreement": 1.0}
    assert answer_agreement([(1, "a"), (2, "b")]) == {"other_prompt_agreement": 0.0}


def test_agreement_is_unbiased():
    """Its mean over all answers of a policy is the probability that two independent answers are the same."""
    policy = {1: {"a": 0.7, "b": 0.3}, 2: {"a": 0.2, "b": 0.8}}
    same = other = 0.0
    for first in policy[1]:
        for second in policy[1]:
            for third in policy[2]:
                chance = policy[1][first] * policy[1][second] * policy[2][third]
                agreement = answer_agreement([(1, first), (1, second), (2, third)])
                same += chance * agreement["same_prompt_agreement"]
                other += chance * agreement["other_prompt_agreement"]
    assert same == pytest.approx(0.7**2 + 0.3**2)
    assert other == pytest.approx(0.7 * 0.2 + 0.3 * 0.8)


def test_a_search_that_repeats_itself_shows():
    nodes = [node(0, 1, "a", 0.0), node(0, 1, "b", 0.0), node(0, 1, "a", 0.0), node(1, 2, "a", 0.0)]
    keys = [b"x", b"y", b"x", None]
    tree = tree_of(*(replace(turn, state_key=key) for turn, key in zip(nodes, keys, strict=True)))
    # Of four candidates one repeats a sibling; of three states with a key two are different.
    assert tree_metrics([tree]) == {"duplicate_candidates": 0.25, "unique_states": pytest.approx(2 / 3)}
    # States are counted tree by tree: another tree may visit them too.
    assert tree_metrics([tree, tree])["unique_states"] == pytest.approx(2 / 3)
    assert tree_metrics([tree_of(*nodes)]) == {"duplicate_candidates": 0.25}
    assert tree_metrics([tree_of()]) == {}


def information(policy):
    """Return the information of all answers, as often as their probability `policy[prompt][answer]` demands."""
    table, own, repeats = [], [], 20
    for prompt, shares in enumerate(policy):
        for answer, share in enumerate(shares):
            for _ in range(round(share * repeats)):
                table.append([log(other[answer]) if other[answer] else -1e9 for other in policy])
                own.append(prompt)
    return prompt_information(torch.tensor(table), own)


def test_answers_have_their_mutual_information_with_prompts():
    measured = information([[0.25] * 4] * 3)
    assert measured.nats == pytest.approx(0.0, abs=1e-6)
    assert (measured.retrieval, measured.chance) == (pytest.approx(1 / 3), 1 / 3)
    assert measured.recall == pytest.approx(0.0)
    measured = information([[1.0, 0.0], [0.0, 1.0]])
    assert (measured.nats, measured.bound) == (pytest.approx(log(2)), log(2))
    assert (measured.retrieval, measured.recall) == (1.0, 1.0)
    policy = [[0.5, 0.5], [0.2, 0.8]]
    mixed = [0.35, 0.65]
    expected = sum(0.5 * shares[z] * log(shares[z] / mixed[z]) for shares in policy for z in range(2))
    assert information(policy).nats == pytest.approx(expected, abs=1e-6)
    # The first answer is more likely after the first prompt, the second after the second.
    assert information(policy).retrieval == pytest.approx((0.5 + 0.8) / 2)


@pytest.mark.parametrize(("shape", "own"), [((3, 1), [0, 0, 0]), ((0, 2), []), ((2, 2), [0])])
def test_information_needs_prompts_and_answers(shape, own):
    with pytest.raises(ValueError, match="wanted at least 2 prompts"):
        prompt_information(torch.zeros(shape), own)


@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_likelihoods_that_are_not_finite_are_an_error(bad):
    with pytest.raises(TrainingDiverged, match="mutual information = "):
        prompt_information(torch.tensor([[bad, bad], [-1.0, -2.0]]), [0, 1])


def test_each_different_prompt_has_one_first_answer():
    groups = [saying(5, [7], [8]), saying(6, [9]), saying(5, [1]), saying(4, [2]), saying(3, [])]
    assert first_answers(groups) == ([(5,), (6,), (4,)], [(7,), (9,), (2,)])
    assert first_answers(groups, most=2) == ([(5,), (6,)], [(7,), (9,)])
