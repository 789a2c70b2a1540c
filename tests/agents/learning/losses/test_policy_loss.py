"""The loss of an objective: its parts by hand, its gradients as policy gradients, its sums over micro-batches."""

from dataclasses import replace
from math import log

import pytest
import torch

from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.losses import (
    Given,
    StepWeights,
    policy_loss,
    step_weights,
)
from tsr_gym.agents.learning.objective import Objective

# A trajectory of two turns, two tokens and one, and a trajectory of one token; all in one flat layout.
TURN, SEQUENCE = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 0, 1])
WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4])
OLD = torch.tensor([-1.0, -2.0, -0.5, -1.5])
ENTROPY = torch.tensor([1.0, 2.0, 0.0, 0.5])


def given(advantages, **more):
    return Given(OLD, torch.tensor(advantages), WEIGHTS, TURN, SEQUENCE, **more)


def now(*ratios):
    return (OLD + torch.tensor([log(ratio) for ratio in ratios])).requires_grad_()


def test_by_default_it_is_the_papers_surrogate_with_an_entropy_bonus():
    logprobs = now(1.5, 0.9, 0.5, 1.0)
    found = policy_loss(Objective(), logprobs, ENTROPY, given([1.0, -1.0, -2.0, 3.0]))
    # 0.1 * 1.28 - 0.2 * 0.9 - 0.3 * 1.6 + 0.4 * 3, and the mean entropy 0.1 + 0.4 + 0.2.
    surrogate = -(0.128 - 0.18 - 0.48 + 1.2)
    assert found.parts["policy_loss"].item() == pytest.approx(surrogate, abs=1e-6)
    assert found.parts["entropy"].item() == pytest.approx(0.7)
    assert found.parts["clip_fraction"].item() == pytest.approx(0.4)
    assert found.loss.item() == pytest.approx(surrogate - 0.001 * 0.7, abs=1e-6)
    assert found.parts.keys() == {"policy_loss", "entropy", "clip_fraction"}
    assert not any(part.requires_grad for part in found.parts.values())


def test_a_ratio_by_turns_is_shared_by_the_tokens_of_a_turn():
    # Turn 0 has the ratio 1.5 * 0.8 = 1.2, turn 1 has 0.5, the other trajectory 2.
    found = policy_loss(
        Objective(ratio="turn", entropy=0.0), now(1.5, 0.8, 0.5, 2.0), ENTROPY, given([1.0, 1.0, -1.0, 1.0])
    )
    assert found.loss.item() == pytest.approx(-(0.3 * 1.2 - 0.3 * 0.8 + 0.4 * 1.28), abs=1e-6)
    assert found.parts["clip_fraction"].item() == pytest.approx(0.7)


def test_a_ratio_by_sequences_is_the_geometric_mean_of_its_tokens():
    found = policy_loss(
        Objective(ratio="sequence_mean", entropy=0.0), now(2.0, 2.0, 0.25, 1.2), ENTROPY, given([1.0, 1.0, 1.0, 2.0])
    )
    assert found.loss.item() == pytest.approx(-(0.6 * 1.0 + 0.4 * 2.4), abs=1e-6)


def gradient(objective, logprobs, advantages):
    policy_loss(objective, logprobs, ENTROPY, given(advantages)).loss.backward()
    return logprobs.grad.tolist()


def test_before_the_first_step_every_ratio_has_the_policy_gradient():
    """At ratio 1 a token's pull is weight times advantage; a product over a turn gives each token the turn's sum."""
    worth = [2.0, 2.0, -1.0, 3.0]
    by_token = [-0.2, -0.4, 0.3, -1.2]
    for ratio in ("token", "turn", "turn_mean", "sequence", "sequence_mean"):
        free = Objective(ratio=ratio, gradient="token", entropy=0.0)
        assert gradient(free, now(1, 1, 1, 1), worth) == pytest.approx(by_token, abs=1e-6)
    assert gradient(Objective(surrogate="cispo", entropy=0.0), now(1, 1, 1, 1), worth) == pytest.approx(by_token)
    summed = gradient(Objective(ratio="turn", entropy=0.0), now(1, 1, 1, 1), worth)
    assert summed == pytest.approx([-0.6, -0.6, 0.3, -1.2], abs=1e-6)
    mean = gradient(Objective(ratio="turn_mean", entropy=0.0), now(1, 1, 1, 1), worth)
    assert mean == pytest.approx([-0.3, -0.3, 0.3, -1.2], abs=1e-6)


def test_with_equal_weights_in_a_turn_the_mean_over_it_has_the_gradient_of_single_tokens():
    equal = given([2.0, 2.0, -1.0, 3.0])._replace(weights=torch.tensor([0.25] * 4))
    found = {}
    for ratio in ("token", "turn_mean"):
        logprobs = now(1, 1, 1, 1)
        policy_loss(Objective(ratio=ratio, entropy=0.0), logprobs, ENTROPY, equal).loss.backward()
        found[ratio] = logprobs.grad
    assert torch.allclose(found["token"], found["turn_mean"])


def test_the_divergence_from_a_reference_is_a_penalty():
    reference = OLD + torch.tensor([0.1, -0.2, 0.0, 0.3])
    x = reference - OLD
    for kind, values in (("k1", -x), ("k2", x**2 / 2), ("k3", x.exp() - 1 - x)):
        objective = Objective(entropy=0.0, kl=kind, kl_weight=0.5)
        found = policy_loss(objective, now(1, 1, 1, 1), ENTROPY, given([0.0] * 4, reference_logprobs=reference))
        assert found.parts["kl"].item() == pytest.approx((WEIGHTS * values).sum().item(), abs=1e-6)
        assert found.loss.item() == pytest.approx(0.5 * found.parts["kl"].item(), abs=1e-7)


def test_a_sampler_that_was_not_the_learner_is_corrected_for():
    # The learner's old probabilities are 1.5, 0.5, 4 and 1 times those of the sampler.
    sampler = OLD - torch.tensor([log(1.5), log(0.5), log(4.0), 0.0])
    objective = Objective(entropy=0.0, mismatch="truncate", mismatch_high=2.0)
    found = policy_loss(objective, now(1, 1, 1, 1), ENTROPY, given([1.0] * 4, sampler_logprobs=sampler))
    assert found.loss.item() == pytest.approx(-(0.1 * 1.5 + 0.2 * 0.5 + 0.3 * 2.0 + 0.4), abs=1e-6)
    assert found.parts["mismatch_cut"].item() == pytest.approx(0.3)
    expected = -(0.1 * log(1.5) + 0.2 * log(0.5) + 0.3 * log(4.0))
    assert found.parts["mismatch_kl"].item() == pytest.approx(expected, abs=1e-6)
    masked = replace(objective, mismatch="mask")
    cut = policy_loss(masked, now(1, 1, 1, 1), ENTROPY, given([1.0] * 4, sampler_logprobs=sampler))
    assert cut.loss.item() == pytest.approx(-(0.1 * 1.5 + 0.2 * 0.5 + 0.4), abs=1e-6)


def test_imitation_raises_what_was_searched_beside_the_policy_gradient_of_the_rest():
    objective = Objective(entropy=0.0, searched_weight=0.0, imitation=0.1)
    imitated = torch.tensor([0.5, 0.25, 0.25, 0.0])
    logprobs = now(1, 1, 1, 1)
    terms = given([9.0, 9.0, 9.0, 2.0], imitation=imitated)._replace(weights=torch.tensor([0.0, 0.0, 0.0, 1.0]))
    found = policy_loss(objective, logprobs, ENTROPY, terms)
    # 0.5 * 1 + 0.25 * 2 + 0.25 * 0.5.
    assert found.parts["imitation_loss"].item() == pytest.approx(1.125)
    found.loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-0.05, -0.025, -0.025, -2.0])


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Objective(kl_weight=0.1), "kl_weight needs given.reference_logprobs"),
        (Objective(mismatch="mask"), "mismatch needs given.sampler_logprobs"),
        (Objective(imitation=0.1), "imitation needs given.imitation"),
    ],
)
def test_what_a_term_needs_has_to_be_given(objective, message):
    with pytest.raises(ValueError, match=message):
        policy_loss(objective, now(1, 1, 1, 1), ENTROPY, given([1.0] * 4))


def two_groups():
    episodes = [
        episode(turn([1], [2, 3], 0.0, -1.0, -0.5), turn([1, 2, 3, 5], [6], 1.0, -0.25)),
        episode(turn([1], [2], 0.0, -1.0), turn([7], [8, 9], 0.0, -0.5, -0.75)),
        episode(turn([4], [2, 4, 6], 1.0, -1.0, -2.0, -0.125)),
    ]
    batch = collate([Group(0, tuple(episodes[:2])), Group(1, (episodes[2],))])
    return replace(batch, searched=torch.tensor([True, False, False, False]))


@pytest.mark.parametrize("surrogate", ["ppo", "cispo"])
@pytest.mark.parametrize("ratio", ["token", "turn", "turn_mean", "sequence", "sequence_mean"])
def test_parts_and_gradients_add_up_over_micro_batches(surrogate, ratio):
    """Trajectory 1 has two rows; for ratios of sequences they stay together."""
    objective = Objective(
        surrogate=surrogate,
        ratio=ratio,
        dual_clip=1.6,
        entropy=0.1,
        kl_weight=0.2,
        mismatch="truncate",
        mismatch_level=ratio,
        mismatch_high=1.1,
        searched_weight=0.3,
        imitation=0.7,
    )
    batch, draw = two_groups(), torch.Generator().manual_seed(5)
    advantages, entropy, *others = (torch.randn(batch.ids.shape, generator=draw) for _ in range(5))
    logprobs, sampler, reference = (batch.old_logprobs + 0.3 * other for other in others)
    weights = step_weights(objective, replace(batch, solved=torch.tensor([True, False, False, True])))

    def of(rows):
        rows = torch.tensor(rows)
        part, leaf = batch.rows(rows), logprobs[rows].clone().requires_grad_()
        width = part.ids.shape[1]
        terms = Given.of(
            part,
            advantages[rows, :width],
            StepWeights(weights.policy[rows, :width], weights.imitation[rows, :width]),
            sampler_logprobs=sampler[rows, :width],
            reference_logprobs=reference[rows, :width],
        )
        found = policy_loss(objective, leaf[:, :width], entropy[rows, :width], terms)
        found.loss.backward()
        return found, leaf.grad

    whole, gradients = of([0, 1, 2, 3])
    assert whole.parts.keys() == {
        *("policy_loss", "entropy", "clip_fraction", "kl", "imitation_loss", "mismatch_kl", "mismatch_cut")
    }
    parts = [[3], [1, 2], [0]] if objective.needs_whole_sequences else [[3], [1], [2], [0]]
    pieces = [of(rows) for rows in parts]
    for name, value in whole.parts.items():
        assert sum(piece.parts[name] for piece, _ in pieces).item() == pytest.approx(value.item(), abs=1e-6), name
    for rows, (_, found) in zip(parts, pieces, strict=True):
        assert torch.allclose(found, gradients[torch.tensor(rows)], atol=1e-6)
    # Nothing outside of what was sampled is pulled at.
    assert torch.count_nonzero(gradients[~batch.sampled]) == 0


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_the_layout_does_not_matter(ratio):
    batch = two_groups()
    draw = torch.Generator().manual_seed(6)
    logprobs = batch.old_logprobs + 0.3 * torch.randn(batch.ids.shape, generator=draw)
    advantages, entropy = (torch.randn(batch.ids.shape, generator=draw) for _ in range(2))
    objective = Objective(ratio=ratio)
    padded = Given.of(batch, advantages, step_weights(objective, batch))
    flat = Given(*(None if part is None else part[batch.sampled] for part in padded))
    of_rows = policy_loss(objective, logprobs, entropy, padded)
    of_tokens = policy_loss(objective, logprobs[batch.sampled], entropy[batch.sampled], flat)
    assert of_rows.loss.item() == pytest.approx(of_tokens.loss.item(), abs=1e-6)


def test_nan_where_nothing_was_sampled_does_not_spread_and_elsewhere_is_seen():
    batch = two_groups()
    holes = torch.where(batch.sampled, batch.old_logprobs, torch.nan).requires_grad_()
    terms = Given.of(batch, torch.ones(batch.ids.shape), step_weights(Objective(), batch))
    terms = terms._replace(old_logprobs=holes.detach(), reference_logprobs=holes.detach())
    found = policy_loss(Objective(kl_weight=0.1), holes, holes.detach(), terms)
    found.loss.backward()
    assert found.loss.isfinite()
    assert holes.grad.isfinite().all()
    broken = batch.old_logprobs.clone()
    broken[0, 1] = torch.nan
    assert policy_loss(Objective(), broken, holes.detach(), terms).parts["policy_loss"].isnan()
