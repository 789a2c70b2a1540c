"""Estimators of a divergence: values by hand, expectations by going through a whole distribution."""

from math import exp, log

import pytest
import torch

from tsr_gym.agents.learning.losses import kl_estimate

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
