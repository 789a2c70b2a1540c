"""Ratios of tokens, turns and sequences, by hand."""

from math import exp, log

import pytest
import torch

from tsr_gym.agents.learning.losses.importance_ratio import log_ratios, per_token_gradient

# A sequence of two turns in one row, with a token of the environment between them, and one of a single token.
TURN = torch.tensor([[0, 0, -1, 1], [2, -1, -1, -1]])
SEQUENCE = torch.tensor([[0, 0, -1, 0], [1, -1, -1, -1]])
# Ratios 2, 3, (nothing), 0.5 and 5.
DIFFERENCES = torch.tensor([[log(2), log(3), 99.0, log(0.5)], [log(5), float("nan"), 0.0, 0.0]])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [2, 3, 0.5, 5]),
        ("turn", [6, 6, 0.5, 5]),
        ("turn_mean", [6**0.5, 6**0.5, 0.5, 5]),
        ("sequence", [3, 3, 3, 5]),
        ("sequence_mean", [3 ** (1 / 3)] * 3 + [5]),
    ],
)
def test_a_ratio_belongs_to_a_token_a_turn_or_a_sequence(level, expected):
    found = log_ratios(DIFFERENCES, level, turn=TURN, sequence=SEQUENCE)
    assert found.exp()[TURN >= 0].tolist() == pytest.approx(expected)
    assert torch.count_nonzero(found[TURN < 0]) == 0


def test_the_rows_of_a_sequence_need_not_be_one():
    # The same tokens, a row for each turn, and in one flat row.
    rows = torch.tensor([[log(2), log(3)], [log(0.5), 0.0], [log(5), 0.0]])
    turn, sequence = torch.tensor([[0, 0], [1, -1], [2, -1]]), torch.tensor([[0, 0], [0, -1], [1, -1]])
    by_rows = log_ratios(rows, "sequence", turn=turn, sequence=sequence)
    assert by_rows.exp()[turn >= 0].tolist() == pytest.approx([3, 3, 3, 5])
    inside = turn >= 0
    flat = log_ratios(rows[inside], "turn_mean", turn=turn[inside], sequence=sequence[inside])
    assert flat.exp().tolist() == pytest.approx([6**0.5, 6**0.5, 0.5, 5])


@pytest.mark.parametrize(("level", "share"), [("turn", 1.0), ("turn_mean", 0.5)])
def test_a_turns_ratio_pulls_at_all_of_its_tokens(level, share):
    values = DIFFERENCES.nan_to_num().clone().requires_grad_()
    log_ratios(values, level, turn=TURN, sequence=SEQUENCE)[0, 0].backward()
    assert values.grad.tolist() == [[share, share, 0.0, 0.0], [0.0] * 4]


def test_with_a_gradient_per_token_it_pulls_at_one_and_has_the_same_value():
    values = DIFFERENCES.nan_to_num().clone().requires_grad_()
    whole = log_ratios(values, "turn", turn=TURN, sequence=SEQUENCE)
    found = per_token_gradient(whole, values)
    assert torch.equal(found, whole)
    found[0, 0].backward()
    assert values.grad.tolist() == [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]


def test_a_ratio_is_bounded_but_what_is_not_finite_stays_seen():
    values = torch.tensor([50.0, -50.0, float("inf"), -float("inf"), float("nan")])
    units = torch.arange(5)
    found = log_ratios(values, "token", turn=units, sequence=units)
    assert found[:2].tolist() == [20.0, -20.0]
    assert found[2:].isnan().all()
    assert exp(20.0) < float("inf")
