"""Learning to be good at best-of-N: the best rejected return as baseline."""

from torch import Tensor


def best_rejected_baseline(returns: Tensor, kept: int) -> Tensor:
    """Return advantages of N samples that are zero for all but the best K: ``(R_i - R_(K+1)) / K``.

    ``sum_i grad log pi(i) A_i`` over the N samples is then an unbiased estimate of the gradient of the expected mean of
    the best K returns: for a sample that is not kept the objective without it is the same, for a kept one it is less by
    this much, and what the objective would be without a sample is a baseline for it. Ties with the best rejected return
    have advantage 0, however they are broken.

    Args:
        returns: `[N]`, of everything that was sampled.
        kept: K, less than N.

    Returns:
        `[N]`.
    """
    if not 1 <= kept < len(returns):
        raise ValueError(f"wanted 1 <= kept < {len(returns)} returns, got {kept}")
    threshold = returns.sort(descending=True).values[kept]
    return (returns - threshold).clamp(min=0) / kept
