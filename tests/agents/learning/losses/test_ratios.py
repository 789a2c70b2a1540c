"""Ratios, weights for another sampler and divergences: values by hand, expectations over whole distributions."""

from math import exp, log

import pytest
import torch

from tsr_gym.agents.learning.losses.ratios import kl_estimate, log_ratios, mismatch_weights, per_token_gradient

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


SAMPLED = torch.zeros(2, 4)
OLD = torch.tensor([[log(1.5), log(0.9), 7.0, log(4.0)], [log(0.25), 7.0, 7.0, 7.0]])


@pytest.mark.parametrize(
    ("mode", "level", "expected"),
    [
        ("truncate", "token", [1.5, 0.9, 2.0, 0.5]),
        ("mask", "token", [1.5, 0.9, 0.0, 0.0]),
        ("truncate", "turn", [1.35, 1.35, 2.0, 0.5]),
        ("mask", "turn", [1.35, 1.35, 0.0, 0.0]),
        ("truncate", "sequence", [2.0, 2.0, 2.0, 0.5]),
        ("mask", "sequence", [0.0, 0.0, 0.0, 0.0]),
        # The geometric mean of 1.5, 0.9 and 4.
        ("mask", "sequence_mean", [5.4 ** (1 / 3)] * 3 + [0.0]),
    ],
)
def test_weights_stay_within_bounds(mode, level, expected):
    found = mismatch_weights(OLD, SAMPLED, turn=TURN, sequence=SEQUENCE, mode=mode, level=level, low=0.5, high=2.0)
    assert found.weight[TURN >= 0].tolist() == pytest.approx(expected)
    assert found.weight[TURN < 0].tolist() == [1.0] * 4
    changed = [share in (0.0, 0.5, 2.0) for share in expected]
    assert found.cut[TURN >= 0].tolist() == changed


def test_without_bounds_a_mean_over_the_samplers_tokens_is_one_over_the_learners():
    sampler = torch.log_softmax(torch.tensor([0.5, -1.0, 0.2]), dim=0)
    learner = torch.log_softmax(torch.tensor([0.1, 0.4, -0.3]), dim=0)
    worth = torch.tensor([3.0, -1.0, 0.5])
    units = torch.arange(3)
    free = mismatch_weights(learner, sampler, turn=units, sequence=units, mode="truncate", high=float("inf"))
    assert (sampler.exp() * free.weight * worth).sum().item() == pytest.approx((learner.exp() * worth).sum().item())
    bounded = mismatch_weights(learner, sampler, turn=units, sequence=units, mode="truncate", high=1.5)
    assert (sampler.exp() * bounded.weight * worth).sum().item() != pytest.approx(
        (learner.exp() * worth).sum().item(), rel=1e-2
    )


def test_no_gradient_goes_through_a_weight():
    old = OLD.clone().requires_grad_()
    assert not mismatch_weights(old, SAMPLED, turn=TURN, sequence=SEQUENCE, mode="truncate").weight.requires_grad


KINDS = ("k1", "k2", "k3")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Under the policy the token has probability 0.5, under the reference 0.2.
        ("k1", log(0.5 / 0.2)),
        ("k2", log(0.2 / 0.5) ** 2 / 2),
        ("k3", 0.2 / 0.5 - 1 - log(0.2 / 0.5)),
    ],
)
def test_the_estimates_of_one_token(kind, expected):
    found = kl_estimate(torch.tensor([log(0.5)]), torch.tensor([log(0.2)]), kind)
    assert found.item() == pytest.approx(expected, rel=1e-5)
    assert kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.0]), kind).item() == 0.0


def test_k3_is_exact_where_policies_hardly_differ():
    # (e^x - 1) - x cancels in float32; x^2 / 2 is right to the third order.
    found = kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.001]), "k3")
    assert found.item() == pytest.approx(0.001**2 / 2, rel=1e-2)


LOGITS = torch.tensor([0.3, -0.5, 1.0, 0.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([-0.2, 0.4, 0.5, 0.0], dtype=torch.float64), dim=0)
SAMPLER = torch.log_softmax(torch.tensor([0.5, 0.5, 0.0, -0.5], dtype=torch.float64), dim=0)


def gradient(make):
    logits = LOGITS.clone().requires_grad_()
    make(torch.log_softmax(logits, dim=0)).backward()
    return logits.grad


def reverse(policy):
    return (policy.exp() * (policy - REFERENCE)).sum()


def test_k1_and_k3_have_the_divergence_as_mean_and_k2_has_not():
    policy = torch.log_softmax(LOGITS, dim=0)
    means = {kind: (policy.exp() * kl_estimate(policy, REFERENCE, kind)).sum().item() for kind in KINDS}
    assert means["k1"] == pytest.approx(reverse(policy).item())
    assert means["k3"] == pytest.approx(reverse(policy).item())
    assert means["k2"] != pytest.approx(reverse(policy).item(), rel=1e-3)


def test_as_loss_terms_they_descend_different_things():
    """The mean over tokens that the policy sampled of each token's gradient: the weights are not differentiated."""
    shares = torch.softmax(LOGITS, dim=0)

    def mean(kind):
        return gradient(lambda policy: (shares * kl_estimate(policy, REFERENCE, kind)).sum())

    forward = gradient(lambda policy: (REFERENCE.exp() * (REFERENCE - policy)).sum())
    assert mean("k1").abs().max() < 1e-12
    assert torch.allclose(mean("k2"), gradient(reverse))
    assert torch.allclose(mean("k3"), forward)
    assert not torch.allclose(mean("k3"), gradient(reverse), rtol=0.05)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_times_the_ratio_they_descend_the_divergence_whoever_sampled(kind):
    def mean(policy):
        return (SAMPLER.exp() * (policy - SAMPLER).exp() * kl_estimate(policy, REFERENCE, kind)).sum()

    assert torch.allclose(gradient(mean), gradient(reverse))
    assert mean(torch.log_softmax(LOGITS, dim=0)).item() == pytest.approx(
        reverse(torch.log_softmax(LOGITS, dim=0)).item()
    )


def test_a_bound_keeps_k3_finite():
    assert kl_estimate(torch.tensor([-80.0]), torch.tensor([-0.1]), "k3").item() == pytest.approx(
        exp(20) - 21, rel=1e-5
    )
    assert kl_estimate(torch.tensor([-float("inf")]), torch.tensor([-0.1]), "k3").isnan()
