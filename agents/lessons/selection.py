"""Weights that undo the selection of the best K of N: each kept one counts by how likely it was to be kept; torch-free.

Weights by the inverse probability of being kept estimate the mean over all samples. Weights that depend on the rank
alone cannot undo a selection; see docs/objectives.md.
"""

from collections.abc import Sequence
from math import comb


def inclusion_probability(better: float, equal: float, *, samples: int, kept: int) -> float:
    """Return how likely a sample is to be among the best, ties broken by lot.

    With distinct returns this is ``P(Binomial(N - 1, better) < K)``; for K = 1 the familiar ``F^(N - 1)``, so that the
    kept sample has the density ``N F^(N - 1) pi``.

    Args:
        better: Probability that another sample has a larger return.
        equal: Probability that another sample has the same return, itself included in the distribution.
        samples: How many are drawn, N.
        kept: How many of them are kept, K.
    """
    if not 1 <= kept <= samples or better < 0 or equal < 0 or better + equal > 1 + 1e-9:
        raise ValueError(
            f"wanted 1 <= kept <= samples and probabilities that add up to at most 1, got kept {kept}, samples "
            f"{samples}, better {better} and equal {equal}"
        )
    others, worse = samples - 1, max(0.0, 1 - better - equal)
    total = 0.0
    for above in range(min(kept, others + 1)):
        for beside in range(others - above + 1):
            ways = comb(others, above) * comb(others - above, beside)
            chance = better**above * equal**beside * worse ** (others - above - beside)
            total += ways * chance * min(1.0, (kept - above) / (beside + 1))
    return total


def selection_weights(
    returns: Sequence[float], plain: Sequence[float], *, samples: int, kept: int, most: float = 10.0
) -> list[float]:
    """Return what kept trajectories count so that they stand for all that were sampled.

    ``K / (N p)`` with `inclusion_probability` p. The distribution of returns is read off plain play of the same task:
    with the true one, ``1/K sum w f`` is an unbiased estimate of the mean of f under the policy; with few plain
    trajectories, and with the bound, it is only less biased than weights of 1.

    Args:
        returns: Of the kept trajectories.
        plain: Returns of plain play of the same task, which nobody selected.
        samples: How many were sampled, N.
        kept: How many of them were kept, K.
        most: Largest weight: the worst of the kept would otherwise count without limit.
    """
    weights = []
    for value in returns:
        better = sum(other > value for other in plain)
        equal = sum(other == value for other in plain)
        # The kept trajectory is itself a sample with its return.
        total = len(plain) + 1
        chance = inclusion_probability(better / total, (equal + 1) / total, samples=samples, kept=kept)
        weights.append(min(most, kept / (samples * chance)))
    return weights
