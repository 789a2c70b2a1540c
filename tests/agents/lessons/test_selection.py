"""Selection of the best K of N, against all N-tuples of a small distribution."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

from tsr_gym.agents.lessons.selection import inclusion_probability, selection_weights

# Four things a policy may do, two of them worth the same.
LOGITS = torch.tensor([0.4, -0.3, 0.9, 0.1], dtype=torch.float64)
RETURNS = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)


def shares(logits=LOGITS):
    return torch.softmax(logits, dim=0)


def scores():
    """Return the gradient of each choice's log-probability, `[4, 4]`."""
    return torch.eye(4, dtype=torch.float64) - shares()


def tuples(samples):
    """Yield every way to sample, as choices, and how likely it is."""
    for choices in product(range(4), repeat=samples):
        yield choices, shares()[list(choices)].prod().item()


def chances_of_being_kept(choices, kept):
    """Return for each place of a tuple how likely it is among the best, over all ways to break ties."""
    returns = [RETURNS[choice].item() for choice in choices]
    bar = sorted(returns, reverse=True)[kept - 1]
    above = sum(value > bar for value in returns)
    beside = sum(value == bar for value in returns)
    return [1.0 if value > bar else (kept - above) / beside if value == bar else 0.0 for value in returns]


def better_and_equal(choice):
    value = RETURNS[choice].item()
    better, equal = torch.gt(RETURNS, value), torch.eq(RETURNS, value)
    return shares()[better].sum().item(), shares()[equal].sum().item()


SIZES = [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (3, 3)]


@pytest.mark.parametrize(("samples", "kept"), SIZES)
def test_the_probability_of_being_kept_is_the_share_of_all_tuples(samples, kept):
    for choice in range(4):
        weight, keeps = 0.0, 0.0
        for choices, chance in tuples(samples):
            if choices[0] == choice:
                weight += chance
                keeps += chance * chances_of_being_kept(choices, kept)[0]
        found = inclusion_probability(*better_and_equal(choice), samples=samples, kept=kept)
        assert found == pytest.approx(keeps / weight)


def test_the_best_of_n_has_the_density_of_a_maximum():
    # Without ties: F^(N - 1), with F the probability that another one is not better.
    assert inclusion_probability(0.25, 0.0, samples=4, kept=1) == pytest.approx(0.75**3)
    assert inclusion_probability(0.25, 0.75, samples=5, kept=5) == 1.0
    # Everything is worth the same: a lot decides.
    assert inclusion_probability(0.0, 1.0, samples=8, kept=2) == pytest.approx(0.25)


@pytest.mark.parametrize(("samples", "kept"), SIZES)
def test_weights_by_inverse_probability_undo_the_selection(samples, kept):
    """The mean over the kept, so weighted, of whatever function has its mean over the policy as expectation."""
    values = torch.cat([scores(), RETURNS[:, None], scores() * RETURNS[:, None]], dim=1)
    inverse = [
        kept / (samples * inclusion_probability(*better_and_equal(choice), samples=samples, kept=kept))
        for choice in range(4)
    ]
    total, plain = torch.zeros(9, dtype=torch.float64), torch.zeros(9, dtype=torch.float64)
    for choices, chance in tuples(samples):
        for choice, keeps in zip(choices, chances_of_being_kept(choices, kept), strict=True):
            total += chance * keeps / kept * inverse[choice] * values[choice]
            plain += chance * keeps / kept * values[choice]
    expected = (shares()[:, None] * values).sum(dim=0)
    assert torch.allclose(total, expected)
    assert torch.allclose(plain, expected) == (samples == kept)


@pytest.mark.parametrize("samples", [2, 3, 5])
def test_no_weights_by_rank_alone_undo_a_selection(samples):
    """Rank r has the density N C(N-1, r-1) p^(r-1) (1-p)^(N-r), p the tail: only equal weights make 1 of these."""
    tails = np.linspace(0.02, 0.98, 40)
    ranks = np.stack(
        [
            samples
            * len(list(combinations(range(samples - 1), rank)))
            * tails**rank
            * (1 - tails) ** (samples - 1 - rank)
            for rank in range(samples)
        ],
        axis=1,
    )
    weights, *_ = np.linalg.lstsq(ranks, np.ones(40), rcond=None)
    assert weights == pytest.approx(np.full(samples, 1 / samples))
    for kept in range(1, samples):
        found, *_ = np.linalg.lstsq(ranks[:, :kept], np.ones(40), rcond=None)
        assert np.abs(ranks[:, :kept] @ found - 1).max() > 0.1


def test_estimated_weights_approach_the_exact_ones_with_more_plain_play():
    draw = np.random.default_rng(0)
    plain = RETURNS[draw.choice(4, size=4000, p=shares().numpy())].tolist()
    found = selection_weights([2.0, 1.0], plain, samples=4, kept=2)
    exact = [2 / (4 * inclusion_probability(*better_and_equal(choice), samples=4, kept=2)) for choice in (3, 1)]
    assert found == pytest.approx(exact, rel=0.03)
    # One plain trajectory that was worse, the kept one itself being the other: half is equal, nothing better.
    assert selection_weights([2.0], [0.0], samples=2, kept=1) == [
        pytest.approx(1 / (2 * inclusion_probability(0.0, 0.5, samples=2, kept=1)))
    ]


def test_what_plain_play_hardly_ever_leaves_in_counts_only_so_much():
    assert selection_weights([0.0], [1.0] * 99, samples=8, kept=1) == [10.0]
    assert selection_weights([0.0], [1.0] * 99, samples=8, kept=1, most=3.0) == [3.0]


@pytest.mark.parametrize(
    ("better", "equal", "samples", "kept"), [(0.5, 0.6, 4, 2), (-0.1, 0.2, 4, 2), (0.1, 0.2, 4, 5), (0.1, 0.2, 4, 0)]
)
def test_probabilities_that_are_none_are_refused(better, equal, samples, kept):
    with pytest.raises(ValueError, match="wanted 1 <= kept <= samples"):
        inclusion_probability(better, equal, samples=samples, kept=kept)
